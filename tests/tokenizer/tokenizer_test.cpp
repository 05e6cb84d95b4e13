#include "src/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Ids = std::vector<std::int32_t>;

/// A whole tokenizer.json of these parts, JSON each.
struct File {
  std::string model =
      R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3,"abc":4},"merges":["a b","ab c"]})";
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"Fuse"})";

  [[nodiscard]] Tokenizer load() const {
    return Tokenizer::from_json(R"({"version":"1.0","added_tokens":)" + added +
                                    R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
                                    pre_tokenizer + R"(,"post_processor":)" + post_processor +
                                    R"(,"decoder":)" + decoder + R"(,"model":)" + model + "}",
                                "tokenizer.json");
  }
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "no error";
}

std::string message_of(const File& file) {
  return message_of([&] { (void)file.load(); });
}

TEST(Tokenizer, merges_by_rank) {
  const Tokenizer tokenizer = File{}.load();
  EXPECT_EQ(tokenizer.encode("abcabca"), (Ids{4, 4, 0}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.encode("xaxbx"), (Ids{2}));  // unknown characters vanish without unk_token
  EXPECT_EQ(tokenizer.decode(Ids{4, 99, -1, 0}), "abca");
}

TEST(Tokenizer, of_two_merges_of_a_pair_the_later_counts) {
  File file;
  file.model =
      R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},"merges":["a b","b c","a b"]})";
  EXPECT_EQ(file.load().encode("abc"), (Ids{0, 4}));
}

TEST(Tokenizer, white_space_is_of_one_added_token_alone) {
  File file;
  file.added = R"([{"id":8,"content":"<x>","rstrip":true},{"id":9,"content":"<y>","lstrip":true}])";
  const EncodedText encoded = file.load().encode_with_spans("<x>  <y>");
  EXPECT_EQ(encoded.ids, (Ids{8, 9}));
  EXPECT_EQ(encoded.spans[0].end, 5U);
  EXPECT_EQ(encoded.spans[1].begin, 5U);
}

TEST(Tokenizer, white_space_that_one_added_token_takes_is_no_other_one) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"version":"1.0","added_tokens":[)"
                           R"({"id":1,"content":"<m>","special":true,"rstrip":true},)"
                           R"({"id":2,"content":" ","special":true,"lstrip":true}],)"
                           R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                           "tokenizer.json");
  EXPECT_EQ(tokenizer.encode("a<m> a"), (Ids{0, 1, 0}));
  EXPECT_EQ(tokenizer.encode("a<m>   a"), (Ids{0, 1, 0}));
  EXPECT_EQ(tokenizer.encode("a  <m>a"), (Ids{0, 2, 2, 1, 0}));
}

TEST(Tokenizer, bytes_are_spelled_as_rust_reads_them) {
  File file;
  file.model =
      R"({"type":"BPE","vocab":{"<0x41>":0,"<0x+B>":1,"<0x-B>":2,"<0x4 >":3,"<0xé>":4},"merges":[]})";
  file.decoder = R"({"type":"ByteFallback"})";
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.decode(Ids{0, 1}), "A\v");
  EXPECT_EQ(tokenizer.decode(Ids{2, 3, 4}), "<0x-B><0x4 ><0x\xc3\xa9>");
}

TEST(Tokenizer, tokens_and_ids) {
  File file;
  file.added = R"([{"id":7,"content":"<s>","special":true,"normalized":false}])";
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.vocab_size(), 8);
  EXPECT_EQ(tokenizer.token(7), "<s>");
  EXPECT_EQ(tokenizer.token(2), "ab");
  EXPECT_EQ(tokenizer.token(5), "");
  EXPECT_EQ(tokenizer.token(-1), "");
  EXPECT_EQ(tokenizer.token_id("<s>"), 7);
  EXPECT_EQ(tokenizer.token_id("zz"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(7));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.encode("a<s>b"), (Ids{0, 7, 1}));
  EXPECT_EQ(tokenizer.decode(Ids{0, 7, 1}), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{0, 7, 1}, false), "a<s>b");
}

TEST(Tokenizer, text_that_is_not_utf8_counts_as_replacement_characters) {
  File file;
  file.model = R"({"type":"BPE","vocab":{"a":0,"�":1},"merges":[]})";
  EXPECT_EQ(file.load().encode("a\xFF\xE2\x82"
                               "a"),
            (Ids{0, 1, 1, 0}));
}

TEST(Tokenizer, a_word_of_a_megabyte_is_not_quadratic) {
  const Tokenizer tokenizer = File{}.load();
  std::string text;
  while (text.size() < (1 << 20)) text += "abcab";
  EXPECT_EQ(tokenizer.encode(text).size(), 2 * text.size() / 5);  // abc ab abc ab ...
}

TEST(Tokenizer, threads_share_one) {
  const Tokenizer tokenizer =
      Tokenizer::from_directory(std::string(MOESAIC_TEST_DATA) + "/tokenizers/deepseek_v3");
  const std::string text = "Threads encode and decode 漢字 at once; 123456 times!\n\n";
  const Ids expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(tokenizer.encode(text), expected);
        EXPECT_EQ(tokenizer.decode(expected), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StreamDecoder, holds_back_what_a_later_token_may_change) {
  File file;
  file.model = R"({"type":"BPE","vocab":{"a":0,"<0xC3>":1,"<0xA9>":2},"merges":[]})";
  file.decoder = R"({"type":"ByteFallback"})";
  StreamDecoder decoder(file.load());
  EXPECT_EQ(decoder.push(0), "a");
  EXPECT_EQ(decoder.push(1), "");
  EXPECT_EQ(decoder.push(2), "");  // one byte more would make three replacement characters of it
  EXPECT_EQ(decoder.push(0), "éa");
  EXPECT_EQ(decoder.push(1), "");
  EXPECT_EQ(decoder.finish(), "�");
}

TEST(StreamDecoder, byte_level_gives_a_character_with_its_last_byte) {
  File file;
  file.model = R"({"type":"BPE","vocab":{"Ã":0,"©":1,"a":2},"merges":[]})";
  file.decoder = R"({"type":"ByteLevel"})";
  StreamDecoder decoder(file.load());
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.push(1), "é");
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.push(2), "�a");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(TokenizerErrors, missing_or_not_json) {
  EXPECT_EQ(message_of([] { (void)Tokenizer::from_directory("/nonexistent"); }),
            "/nonexistent/tokenizer.json: no such file");
  const test::TemporaryDirectory kimi;
  test::write_text(kimi.path_of("tiktoken.model"), "IQ== 0\n");
  EXPECT_EQ(message_of([&] { (void)Tokenizer::from_directory(kimi.path()); }),
            kimi.path_of("tokenizer.json") +
                ": no such file; tiktoken.model is there, of which tools/kimi_tokenizer.py of "
                "Moesaic's sources makes one");
  EXPECT_NE(message_of([] { (void)Tokenizer::from_json("{", "t.json"); }).find("t.json: not valid"),
            std::string::npos);
  EXPECT_EQ(message_of([] { (void)Tokenizer::from_json("{}", "t.json"); }),
            "t.json: field \"model\" is missing");
  EXPECT_NE(message_of([] { (void)Tokenizer::from_json("[1]", "t.json"); }).find("an object"),
            std::string::npos);
}

TEST(TokenizerErrors, unsupported_parts_are_named) {
  File file;
  file.model = R"({"type":"Unigram","vocab":[["a",-1.0]]})";
  EXPECT_EQ(message_of(file), "tokenizer.json: model.type is \"Unigram\"; only BPE is supported");
  const std::vector<std::pair<std::string File::*, std::string>> parts = {
      {&File::normalizer, "normalizer"},
      {&File::pre_tokenizer, "pre_tokenizer"},
      {&File::post_processor, "post_processor"},
      {&File::decoder, "decoder"}};
  for (const auto& [member, name] : parts) {
    File other;
    other.*member = R"({"type":"Martian"})";
    EXPECT_EQ(message_of(other).find("tokenizer.json: " + name + ".type is \"Martian\"; supported"),
              0U)
        << message_of(other);
    other.*member = "7";
    EXPECT_NE(message_of(other).find(name + ": expected an object"), std::string::npos)
        << message_of(other);
    other.*member = "{}";
    EXPECT_EQ(message_of(other), "tokenizer.json: " + name + ": field \"type\" is missing");
  }
}

TEST(TokenizerErrors, hostile_models) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"vocab":{"a":-1},"merges":[]})", "model.vocab.a: -1 is not a token id"},
      {R"({"vocab":{"a":99999999999},"merges":[]})", "99999999999 is not a token id"},
      {R"({"vocab":{"a":1.5},"merges":[]})", "model.vocab.a: expected an integer"},
      {R"({"vocab":{"a":"0"},"merges":[]})", "model.vocab.a: expected an integer"},
      {R"({"vocab":{"a":0,"b":0},"merges":[]})", R"(id 0 is given to "a" and to "b")"},
      {R"({"vocab":{"a":0,"a":1},"merges":[]})", R"(key "a" stands twice)"},
      {R"({"vocab":[],"merges":[]})", "model.vocab: expected an object"},
      {R"({"vocab":{},"merges":{}})", "model.merges: expected an array"},
      {R"({"vocab":{"c":0},"merges":["a b"]})", R"(token "a" is not in the vocabulary)"},
      {R"({"vocab":{"a":0,"b":1},"merges":["a b"]})", R"(token "ab" is not in the vocabulary)"},
      {R"({"vocab":{"a":0,"ab":1},"merges":["a b"]})", R"(token "b" is not in the vocabulary)"},
      {R"({"vocab":{"a":0},"merges":["aa"]})", "expected two tokens and a space"},
      {R"({"vocab":{"a":0},"merges":["a a a"]})", "expected two tokens and a space"},
      {R"({"vocab":{"a":0},"merges":[["a"]]})", "model.merges[0]: expected two tokens, found 1"},
      {R"({"vocab":{"a":0},"merges":[[0,1]]})", "expected a string"},
      {R"({"vocab":{"a":0},"merges":[7]})", "expected a string"},
      {R"({"vocab":{"a":0},"merges":[],"dropout":0.1})", "model.dropout is set"},
      {R"({"vocab":{"a":0},"merges":[],"byte_fallback":"yes"})", "model.byte_fallback: expected"},
      {R"({"vocab":{"a":0},"merges":[["a","a"]],"continuing_subword_prefix":"###"})", "shorter"},
      {R"({"vocab":{"a":0}})", "field \"merges\" is missing"},
      {R"({"type":"BPE","merges":[]})", "field \"vocab\" is missing"},
  };
  for (const auto& [model, wanted] : cases) {
    File file;
    file.model = model;
    EXPECT_NE(message_of(file).find(wanted), std::string::npos)
        << model << " gives: " << message_of(file);
  }
}

TEST(TokenizerErrors, a_lacking_unknown_token_is_told_when_it_is_needed) {
  File file;
  file.model = R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<unk>"})";
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.encode("aa"), (Ids{0, 0}));
  EXPECT_NE(message_of([&] { (void)tokenizer.encode("ax"); }).find("<unk>"), std::string::npos);
}

TEST(TokenizerErrors, a_text_does_not_grow_without_end) {
  const std::string step =
      R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(1000, 'a') + "\"}";
  File bomb;  // 10^12 letters for each
  bomb.normalizer =
      R"({"type":"Sequence","normalizers":[)" + step + "," + step + "," + step + "," + step + "]}";
  const std::string wanted = "the normalizer of the tokenizer makes more than";
  EXPECT_EQ(message_of([&] { (void)bomb.load().encode("aaa"); }).find(wanted), 0U);
  File long_prefix;
  long_prefix.normalizer =
      R"({"type":"Prepend","prepend":")" + std::string(10'000'000, 'a') + "\"}";
  EXPECT_EQ(message_of([&] { (void)long_prefix.load().encode("a"); }).find(wanted), 0U);
  const auto many = [](const std::string& part) {
    std::string parts = part;
    for (int i = 0; i < 24; ++i) parts += "," + part;
    return parts + "]}";
  };
  File bytes;  // a byte of its characters is one of two bytes each time
  bytes.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)" +
                        many(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})");
  const std::string of_bytes = message_of([&] { (void)bytes.load().encode("\xc3\xa4"); });
  EXPECT_EQ(of_bytes.find("the pre_tokenizer of the tokenizer makes more than"), 0U);
  File doubled;
  doubled.post_processor =
      R"({"type":"Sequence","processors":[)" +
      many(R"({"type":"TemplateProcessing","special_tokens":{},"single":[{"Sequence":{"id":"A"}},)"
           R"({"Sequence":{"id":"A"}}]})");
  const std::string of_doubled = message_of([&] { (void)doubled.load().encode("a"); });
  EXPECT_EQ(of_doubled.find("the post_processor of the tokenizer makes more than"), 0U);
  File longest;  // of what is in use: 11 times as long
  longest.normalizer = R"({"type":"NFKD"})";
  EXPECT_NO_THROW((void)longest.load().encode("\xef\xb7\xba\xef\xb7\xba"));
}

TEST(TokenizerErrors, hostile_parts) {
  const auto nested = [](const std::string& members, int depth) {
    std::string text = "null";
    for (int i = 0; i < depth; ++i) {
      text = R"({"type":"Sequence",")" + members + R"(":[)" + (i == 0 ? "" : text) + "]}";
    }
    return text;
  };
  const std::vector<std::tuple<std::string File::*, std::string, std::string>> cases = {
      {&File::added, R"([{"id":9}])", "field \"content\" is missing"},
      {&File::added, R"([{"id":-9,"content":"x"}])", "added_tokens[0].id: -9 is not a token id"},
      {&File::added, R"([{"id":3,"content":"x"}])",
       R"(id 3 is given to "x", in the vocabulary to "c")"},
      {&File::added, R"([{"id":9,"content":"ab"}])",
       R"(token "ab" has id 9 here and id 2 in the vocabulary)"},
      {&File::added, R"([{"id":9,"content":"x","lstrip":1}])", "lstrip: expected"},
      {&File::added, R"([{"id":9,"content":"x"},{"id":9,"content":"y"}])", "id 9 is given to"},
      {&File::added, "{}", "added_tokens: expected an array"},
      {&File::normalizer, nested("normalizers", 50), "nested deeper than 16"},
      {&File::normalizer, nested("normalizers", 500), "nested deeper than 200"},
      {&File::normalizer, R"({"type":"Replace","pattern":{"Regex":"["},"content":""})",
       "normalizer"},
      {&File::normalizer, R"({"type":"Replace","pattern":"a","content":""})", "normalizer.pattern"},
      {&File::normalizer, R"({"type":"Prepend"})", "field \"prepend\" is missing"},
      {&File::pre_tokenizer, nested("pretokenizers", 50), "nested deeper than 16"},
      {&File::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"(a"},"behavior":"Removed"})",
       "pre_tokenizer.pattern.Regex: not a pattern"},
      {&File::pre_tokenizer, R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})",
       "pre_tokenizer.behavior is \"Odd\""},
      {&File::pre_tokenizer, R"({"type":"Metaspace","replacement":"ab"})",
       "expected one character"},
      {&File::pre_tokenizer, R"({"type":"Metaspace","replacement":"_","prepend_scheme":"x"})",
       "prepend_scheme is \"x\""},
      {&File::pre_tokenizer,
       R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false})",
       "add_prefix_space is false"},
      {&File::decoder, nested("decoders", 50), "nested deeper than 16"},
      {&File::decoder,
       R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"ab"},)"
       R"("content":")" +
           std::string(131072, 'a') +
           R"("},{"type":"Replace","pattern":{"Regex":"a*"},"content":" "}]})",
       "decoder.decoders[1]: with those before it, it may make a token 131072 times as long"},
      {&File::decoder,
       R"({"type":"Replace","pattern":{"Regex":"a"},"content":")" + std::string(70000, 'a') + "\"}",
       "decoder: with those before it, it may make a token 70001 times as long"},
      {&File::decoder, R"({"type":"Strip","content":" ","start":-1,"stop":0})", "decoder.start"},
      {&File::post_processor, nested("processors", 50), "nested deeper than 16"},
      {&File::post_processor, R"({"type":"TemplateProcessing"})", "field \"single\" is missing"},
      {&File::post_processor,
       R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}]})",
       R"(single[0].Sequence.id is "B")"},
      {&File::post_processor,
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],
           "special_tokens":{"<s>":{"ids":[50]}}})",
       "no token has the id 50"},
      {&File::post_processor,
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],
           "special_tokens":{}})",
       "field \"<s>\" is missing"},
  };
  for (const auto& [member, text, wanted] : cases) {
    File file;
    file.*member = text;
    EXPECT_NE(message_of(file).find(wanted), std::string::npos)
        << text << " gives: " << message_of(file);
  }
}

}  // namespace
}  // namespace moesaic
