// What tokenizer_config.json and special_tokens_map.json say besides tokenizer.json.

#include "src/tokenizer/tokenizer_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/tokenizer/tokenizer.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Ids = std::vector<std::int32_t>;

/// Ids as AutoTokenizer of transformers 4.57 has them; 5 adds neither token, whatever is set.
TEST(TokenizerConfig, of_gpt_neox_says_what_stands_around_a_text) {
  const test::TemporaryDirectory directory;
  const std::string from = std::string(MOESAIC_TEST_DATA) + "/tokenizers/olmoe/tokenizer.json";
  const Ids text = {39, 315, 75, 78, 337, 284, 659};
  const auto ids = [&](const std::string& config) {
    test::write_text(directory.path_of("tokenizer_config.json"), config);
    return Tokenizer::from_directory(directory.path()).encode("Hello world");
  };
  std::filesystem::copy_file(from, directory.path_of("tokenizer.json"));
  const auto with = [](Ids begin, const Ids& middle, const Ids& end) {
    begin.insert(begin.end(), middle.begin(), middle.end());
    begin.insert(begin.end(), end.begin(), end.end());
    return begin;
  };
  EXPECT_EQ(ids("{}"), with({}, text, {705})) << "what the file says";
  const std::string own = R"({"tokenizer_class": "GPTNeoXTokenizer", "bos_token": "<|endoftext|>")";
  EXPECT_EQ(ids(own + "}"), text);
  EXPECT_EQ(ids(own + R"(, "add_eos_token": false, "add_bos_token": true})"),
            with({705}, text, {}));
  EXPECT_EQ(ids(own + R"(, "add_eos_token": true})"), with({}, text, {705}));
  EXPECT_NE(test::error_message([&] {
              (void)ids(own + R"(, "eos_token": "<end>", "add_eos_token": true})");
            }).find("/tokenizer_config.json: there is no token \"<end>\""),
            std::string::npos);
}

TEST(TokenizerConfig, names_special_tokens) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path_of("tokenizer.json"),
                   R"({"version":"1.0","added_tokens":[)"
                   R"({"id":1,"content":"<x>","special":false,"normalized":false},)"
                   R"({"id":2,"content":"<y>","special":false,"normalized":false},)"
                   R"({"id":3,"content":"<z>","special":false,"normalized":false}],)"
                   R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  test::write_text(directory.path_of("tokenizer_config.json"),
                   R"({"pad_token": {"content": "<x>"}, "eos_token": null,)"
                   R"( "additional_special_tokens": ["<y>"]})");
  const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(3));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<x><y><z>")), "a <z>");
}

/// As in transformers 4.57 and 5.24, too.
TEST(TokenizerConfig, makes_tokens_special_that_the_vocabulary_alone_has) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path_of("tokenizer.json"),
                   R"({"version":"1.0","added_tokens":[],"model":{"type":"BPE",)"
                   R"("vocab":{"a":0,"<":1,"/":2,"s":3,">":4,"</s>":5},"merges":[]}})");
  const auto encoded = [&](const std::string& config, const std::string& map) {
    test::write_text(directory.path_of("tokenizer_config.json"), config);
    test::write_text(directory.path_of("special_tokens_map.json"), map);
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    const bool is_special = tokenizer.is_special(5);
    EXPECT_EQ(tokenizer.decode(Ids{0, 5}), is_special ? "a" : "a </s>");
    return tokenizer.encode("a</s>a");
  };
  const Ids special = {0, 5, 0};
  const Ids text = {0, 1, 2, 3, 4, 0};
  EXPECT_EQ(encoded("{}", "{}"), text);
  EXPECT_EQ(encoded(R"({"eos_token": "</s>", "pad_token": "</s>"})", "{}"), special);
  EXPECT_EQ(encoded(R"({"extra_special_tokens": {"end": "</s>"}})", "{}"), special);
  EXPECT_EQ(encoded(R"({"eos_token": "a"})", R"({"eos_token": "</s>"})"), special);
  EXPECT_EQ(encoded(R"({"added_tokens_decoder": {}})", R"({"eos_token": "</s>"})"), text);
  EXPECT_EQ(encoded(R"({"eos_token": "</s>"})", R"({"eos_token": null})"), text);
  EXPECT_EQ(encoded(R"({"additional_special_tokens": ["</s>"]})",
                    R"({"additional_special_tokens": ["<"]})"),
            special)
      << "both lists count";
}

/// As PreTrainedTokenizerFast of transformers 4.57 has them.
TEST(TokenizerConfig, adds_the_tokens_that_its_added_tokens_decoder_alone_has) {
  const test::TemporaryDirectory directory;
  const auto load = [&](const std::string& added, const std::string& decoder,
                        const std::string& more = "") {
    test::write_text(directory.path_of("tokenizer.json"),
                     R"({"version":"1.0","added_tokens":[)" + added +
                         R"(],"model":{"type":"BPE","vocab":)"
                         R"({"a":0,"<":1,"/":2,"s":3,">":4,"</s>":5," ":6},"merges":[]}})");
    test::write_text(directory.path_of("tokenizer_config.json"),
                     R"({"added_tokens_decoder": {)" + decoder + "}" + more + "}");
    return Tokenizer::from_directory(directory.path());
  };
  const auto token = [](const std::string& text, bool special, const std::string& more = "") {
    return R"({"content":")" + text + R"(","normalized":false,"special":)" +
           (special ? "true" : "false") + more + "}";
  };
  const std::string lstrip = R"(,"lstrip":true)";
  const auto expect = [](const Tokenizer& tokenizer, const std::string& text, const Ids& ids,
                         const std::string& decoded) {
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(tokenizer.decode(ids), decoded);
  };
  const std::string x = token("<x>", true, R"(,"id":7)");
  // Of the vocabulary: with that id, whatever is said.
  expect(load("", R"("5":)" + token("</s>", true)), "a</s>a", {0, 5, 0}, "a a");
  expect(load("", R"("9":)" + token("</s>", false)), "a</s>a", {0, 5, 0}, "a </s> a");
  expect(load("", R"("5":)" + token("</s>", false), R"(,"eos_token":"</s>")"), "a</s>a", {0, 5, 0},
         "a a");
  expect(load("", R"("5":)" + token("</s>", true, lstrip), R"(,"eos_token":"</s>")"), "a </s>a",
         {0, 5, 0}, "a a");
  // Added in tokenizer.json already: the flags here count, but a special token stays so.
  expect(load(x, R"("7":)" + token("<x>", true, lstrip)), "a <x>a", {0, 7, 0}, "a a");
  expect(load(x, R"("7":)" + token("<x>", false)), "a <x>a", {0, 6, 7, 0}, "a   a");
  // Nowhere else: the next ids, by those that are said.
  const Tokenizer next =
      load(x, R"("20":)" + token("<z>", true) + R"(,"9":)" + token("<y>", false));
  expect(next, "a<y><z>a", {0, 8, 9, 0}, "a <y> a");
  EXPECT_EQ(next.vocab_size(), 10);
  expect(load("", R"("3":)" + token("<y>", true)), "a<y>s", {0, 7, 3}, "a s");
  expect(load("", R"("9":)" + token("", true)), "a", {0}, "a");
  EXPECT_NE(test::error_message([&] {
              (void)load("", R"("x1":)" + token("<y>", true));
            }).find("tokenizer_config.json: added_tokens_decoder.x1: \"x1\" is not a token's id"),
            std::string::npos);
}

/// Where added_tokens_decoder has other flags than tokenizer.json: as transformers 4.57 finds "<X>"
/// in a text that the normalizer has made lower case, and leaves it out.
TEST(TokenizerConfig, looks_for_a_token_as_often_as_it_is_added) {
  const test::TemporaryDirectory directory;
  const auto entry = [](int special, int normalized, const std::string& more) {
    const auto text = [](int flag) { return std::string(flag != 0 ? "true" : "false"); };
    return R"({"content":"<X>","special":)" + text(special) + R"(,"normalized":)" +
           text(normalized) + more + "}";
  };
  const std::string found = "0101111100001111";  // by the four flags, those here changing fastest
  for (int flags = 0; flags < 16; ++flags) {
    const auto flag = [&](int bit) { return flags >> bit & 1; };
    test::write_text(directory.path_of("tokenizer.json"),
                     R"({"version":"1.0","normalizer":{"type":"Lowercase"},"added_tokens":[)" +
                         entry(flag(3), flag(2), R"(,"id":6)") +
                         R"(],"model":{"type":"BPE","vocab":)"
                         R"({"a":0,"<":1,"/":2,"x":3,">":4," ":5},"merges":[]}})");
    test::write_text(directory.path_of("tokenizer_config.json"),
                     R"({"added_tokens_decoder":{"6":)" + entry(flag(1), flag(0), "") + "}}");
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    EXPECT_EQ(tokenizer.encode("a<X>a"), (Ids{0, 6, 0})) << flags;
    const Ids is_found = {0, 6, 0};
    const Ids is_text = {0, 1, 3, 4, 0};
    EXPECT_EQ(tokenizer.encode("a<x>a"),
              found[static_cast<std::size_t>(flags)] == '1' ? is_found : is_text)
        << flags;
    EXPECT_EQ(tokenizer.decode(is_found), flag(3) + flag(1) > 0 ? "a a" : "a <X> a") << flags;
  }
}

TEST(TokenizerConfig, gives_a_token_of_the_vocabulary_its_flags) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path_of("tokenizer.json"),
                   R"({"version":"1.0","added_tokens":[],"model":{"type":"BPE",)"
                   R"("vocab":{"a":0,"<x>":1," ":2},"merges":[]}})");
  test::write_text(directory.path_of("tokenizer_config.json"),
                   R"({"mask_token": {"content": "<x>", "lstrip": true, "normalized": false}})");
  EXPECT_EQ(Tokenizer::from_directory(directory.path()).encode("a <x> a"), (Ids{0, 1, 2, 0}));
}

}  // namespace
}  // namespace moesaic
