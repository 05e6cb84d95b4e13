#include "src/train/sample_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/train/read_lines.h"

namespace moesaic {
namespace {

TEST(SampleReader, TokensAreTakenAsTheyAre) {
  const Result result = read(
      "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 7]}\n\n"
      "{\"input_ids\": [9, 8], \"labels\": [9, 8], \"attention_mask\": [1, 1]}");
  ASSERT_EQ(result.samples.size(), 2);
  EXPECT_EQ(result.format, SampleFormat::tokens);
  EXPECT_EQ(result.samples[0].labels[0], kNotTrained);
  EXPECT_EQ(result.samples[0].trained_tokens(), 2);
  EXPECT_EQ(result.samples[1].trained_tokens(), 1) << "nothing predicts the first token";
  EXPECT_EQ(result.samples.longest(), 3);
  EXPECT_EQ(result.samples.trained_tokens(), 3);
}

TEST(SampleReader, TellsHowFarItHasCome) {
  const std::string line = "{\"input_ids\": [5, 6], \"labels\": [5, 6]}";
  for (const std::string& text : {line + "\n\n" + line + "\n", "[" + line + ", " + line + "]"}) {
    std::vector<std::int64_t> done;
    (void)read(text, tools(), {.context = 9, .progress = [&](std::int64_t now, std::int64_t total) {
                                 EXPECT_EQ(total, std::ssize(text));
                                 done.push_back(now);
                               }});
    ASSERT_EQ(done.size(), 2U);
    EXPECT_GT(done[0], 0);
    EXPECT_LT(done[0], done[1]);
    EXPECT_EQ(done[1], std::ssize(text));
  }
}

TEST(SampleReader, OfConversationsTheAssistantIsTrained) {
  const Result result = read(
      R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},)"
      R"( {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})");
  EXPECT_EQ(result.format, SampleFormat::messages);
  EXPECT_EQ(trained_text(result.samples[0]), "two\n|four\n|");
}

TEST(SampleReader, TheLastTurnAloneOnRequest) {
  SampleTools with = tools();
  with.train_on = TrainOn::last;
  const Result result = read(
      R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},)"
      R"( {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})",
      with);
  EXPECT_EQ(trained_text(result.samples[0]), "four\n|");
}

/// With a template that makes several generation blocks of a turn.
SampleTools block_tools(const std::string& before) {
  SampleTools with = tools();
  const std::string source = before +
                             "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
                             "{% generation %}{{ m.reasoning_content }}{% endgeneration %}<and>"
                             "{% generation %}{{ m.content }}\n{% endgeneration %}"
                             "{% else %}{{ m.content }}\n{% endif %}{% endfor %}";
  with.chat_template = ChatTemplate(ChatFiles{{{"default", {source, "test"}}}, {}});
  with.train_on = TrainOn::last;
  return with;
}

constexpr std::string_view kReasonedTurns =
    R"({"messages": [{"role": "user", "content": "one"},)"
    R"( {"role": "assistant", "reasoning_content": "why", "content": "two"},)"
    R"( {"role": "user", "content": "three"},)"
    R"( {"role": "assistant", "reasoning_content": "how", "content": "four"})";

TEST(SampleReader, TheLastTurnHasAllItsGenerationBlocks) {
  const std::string turns(kReasonedTurns);
  const Result result = read(turns + "]}", block_tools(""));
  EXPECT_EQ(trained_text(result.samples[0]), "how|four\n|");
  const Result asked = read(turns + R"(, {"role": "user", "content": "five"}]})", block_tools(""));
  EXPECT_EQ(trained_text(asked.samples[0]), "how|four\n|") << "also with a question behind it";
}

TEST(SampleReader, MessagesOfAnAssistantInARowAreOneTurn) {
  const std::string more =
      R"(, {"role": "assistant", "reasoning_content": "so", "content": "five"}]})";
  const Result blocks = read(std::string(kReasonedTurns) + more, block_tools(""));
  EXPECT_EQ(trained_text(blocks.samples[0]), "how|four\n|so|five\n|");
  SampleTools with = tools();
  with.train_on = TrainOn::last;
  const Result result = read(std::string(kReasonedTurns) + more, with);
  EXPECT_EQ(trained_text(result.samples[0]), "four\n|five\n|");
}

TEST(SampleReader, ALastTurnWhoseBeginCannotBeToldIsRefused) {
  const SampleTools counting = block_tools("{{ messages | length }}");
  const std::string error = error_of(std::string(kReasonedTurns) + "]}", counting);
  EXPECT_NE(error.find("data.jsonl line 1: where the last turn begins"), std::string::npos)
      << error;
}

TEST(SampleReader, AlpacaAndShareGptAreConversations) {
  const Result alpaca =
      read(R"([{"instruction": "add", "input": "1 2", "output": "3", "system": "be brief",)"
           R"( "history": [["hi", "hello"]]}])");
  EXPECT_EQ(alpaca.format, SampleFormat::alpaca);
  EXPECT_EQ(trained_text(alpaca.samples[0]), "hello\n|3\n|");
  const SampleTools with = tools();
  EXPECT_EQ(with.tokenizer->decode(alpaca.samples[0].tokens, false),
            "<system>be brief\n<user>hi\n<assistant>hello\n<user>add\n1 2\n<assistant>3\n");
  const Result sharegpt = read(
      R"({"conversations": [{"from": "human", "value": "look"}, {"from": "gpt", "value": "so"},)"
      R"( {"from": "observation", "value": "5"}, {"from": "gpt", "value": "five"}]})");
  EXPECT_EQ(sharegpt.format, SampleFormat::sharegpt);
  EXPECT_EQ(with.tokenizer->decode(sharegpt.samples[0].tokens, false),
            "<user>look\n<assistant>so\n<tool>5\n<assistant>five\n");
  EXPECT_EQ(trained_text(sharegpt.samples[0]), "so\n|five\n|");
  const Result named = read(
      R"({"conversations":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})");
  EXPECT_EQ(trained_text(named.samples[0]), "b\n|");
}

TEST(SampleReader, CompletionsEndWithTheEndToken) {
  const Result result = read(R"({"prompt": "In the beginning", "completion": " was the word"})");
  const TrainSample sample = result.samples[0];
  EXPECT_EQ(result.format, SampleFormat::completion);
  EXPECT_EQ(sample.tokens.back(), kEnd);
  EXPECT_EQ(sample.labels.back(), kEnd);
  EXPECT_EQ(sample.labels.front(), kNotTrained);
  EXPECT_TRUE(trained_text(sample).starts_with(" was the word")) << trained_text(sample);
}

TEST(SampleReader, TextsAreTrainedWhole) {
  const Result result = read("{\"text\": \"In the beginning\u2028was\"}\n");
  EXPECT_EQ(result.samples.size(), 1) << "U+2028 ends no line";
  EXPECT_EQ(result.samples.trained_tokens(), result.samples.tokens() - 1);
  EXPECT_EQ(result.samples[0].tokens.back(), kEnd);
}

TEST(SampleReader, LongSamplesAreRefusedCutOrDropped) {
  const std::string text =
      "{\"input_ids\": [1, 2, 3, 4], \"labels\": [1, 2, 3, 4]}\n"
      "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n";
  EXPECT_NE(error_of(text, tools(), {.context = 3}).find("data.jsonl line 1: 4 tokens exceed"),
            std::string::npos);
  const ReadSamples cut = read(text, tools(), {.context = 3, .too_long = TooLong::cut});
  EXPECT_EQ(cut.report.cut, 1);
  EXPECT_EQ(cut.samples.length(0), 3);
  const ReadSamples dropped = read(text, tools(), {.context = 3, .too_long = TooLong::drop});
  EXPECT_EQ(dropped.report.dropped_long, 1);
  EXPECT_EQ(dropped.samples.size(), 1);
}

TEST(SampleReader, SamplesWithoutTrainedTokensAreDroppedAndCounted) {
  const Result result = read(
      "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n"
      "{\"input_ids\": [1, 2], \"labels\": [-100, 2]}\n");
  EXPECT_EQ(result.report.dropped_untrained, 1);
  EXPECT_EQ(result.samples.size(), 1);
  EXPECT_NE(error_of("{\"input_ids\": [1], \"labels\": [1]}")
                .find("no sample is left of 1: 1 without a trained token"),
            std::string::npos);
}

TEST(SampleReader, ErrorsNameLineMemberAndValue) {
  SampleTools small = tools();
  small.vocab_size = 10;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"input_ids\": [1, 10], \"labels\": [1, 2]}",
       "data.jsonl line 1: input_ids[1]: 10 is outside the model's vocabulary of 10"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, -7]}", "labels[1]: -7 is outside"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 2], \"position_ids\": [0, 0]}",
       "position_ids[1]: positions are 0, 1, 2 and so on: a sample is one text"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 2], \"seq_lengths\": [1, 1]}",
       "seq_lengths: a sample is one text"},
      {"{\"input_ids\": [1, 2], \"labels\": [1]}", "1 labels for 2 input_ids"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 2], \"attention_mask\": [0, 1]}",
       "attention_mask[0]"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n"
       "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3], \"attention_mask\": [1]}",
       "data.jsonl line 2: attention_mask: 1 values for 3 input_ids"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 2], \"attention_mask\": {\"x\": 1, \"y\": 1}}",
       "data.jsonl line 1: attention_mask: expected a list of ones"},
      {R"({"instruction": "c", "output": "d", "history": {"a": ["x", "y"]}})",
       "data.jsonl line 1: history: expected a list of pairs"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n{\"input_ids\": [], \"labels\": []}",
       "data.jsonl line 2: the sample has no tokens"},
      {"{\"conversations\": [{\"from\": \"dog\", \"value\": \"x\"}]}",
       "conversations[0].from: \"dog\" speaks"},
      {"{\"question\": \"x\"}", "data.jsonl line 1: the format of the data cannot be told"},
      {"[1]", "expected an object"},
      {"", "data.jsonl holds no sample"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(error_of(text, small).find(expected), std::string::npos) << error_of(text, small);
  }
}

TEST(SampleReader, WhatTheTemplateRefusesNamesFileAndLine) {
  SampleTools strict = tools();
  const std::string source =
      "{% for m in messages %}"
      "{% if m.role == 'system' %}{{ raise_exception('no system messages, please') }}{% endif %}"
      "<{{ m.role }}>{{ m.content.strip() }}\n{% endfor %}";
  strict.chat_template = ChatTemplate(ChatFiles{{{"default", {source, "test"}}}, {}});
  const std::string good = R"({"messages": [{"role": "user", "content": "a"}, )"
                           R"({"role": "assistant", "content": "b"}]})";
  const std::string bad = R"({"messages": [{"role": "system", "content": "a"}, )"
                          R"({"role": "assistant", "content": "b"}]})";
  for (const std::string& text : {good + "\n\n" + bad, good + "\n\n" + bad + "\n"}) {
    const std::string error = error_of(text, strict);
    EXPECT_NE(error.find("data.jsonl line 3: "), std::string::npos) << error;
    EXPECT_NE(error.find("no system messages, please"), std::string::npos) << error;
  }
}

TEST(SampleReader, ConversationsWhoseTrainedPartCannotBeToldAreRefused) {
  SampleTools with = tools();
  const std::string forgets =
      "{% for m in messages %}{% if loop.last or m.role == 'user' %}<{{ m.role }}>{{ m.content }}\n"
      "{% endif %}{% endfor %}";
  with.chat_template = ChatTemplate(ChatFiles{{{"default", {forgets, "test"}}}, {}});
  const std::string error = error_of(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"( {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})",
      with);
  EXPECT_NE(error.find("what the assistant said cannot be told"), std::string::npos) << error;
  EXPECT_NE(error.find("writes earlier turns in another way"), std::string::npos) << error;
  EXPECT_NE(error.find("--train-on last may be told"), std::string::npos) << error;
}

TEST(SampleReader, AnAssistantWhoSpeaksFirstIsTheReasonThatIsTold) {
  const std::string good = R"({"messages": [{"role": "user", "content": "a"}, )"
                           R"({"role": "assistant", "content": "b"}]})";
  const std::string greets = R"({"messages": [{"role": "assistant", "content": "Hello"}, )"
                             R"({"role": "user", "content": "a"}, )"
                             R"({"role": "assistant", "content": "b"}]})";
  const std::string error = error_of(good + "\n" + greets);
  EXPECT_NE(error.find("data.jsonl line 2: what the assistant said cannot be told: an assistant "
                       "speaks first, and the chat template has no generation blocks"),
            std::string::npos)
      << error;
  EXPECT_EQ(error.find("in another way"), std::string::npos) << error;
}

/// Of a tokenizer of the letters a and b, "</s>", "<s>" and "<x>", which adds what `single` says.
SampleTools adding(const std::string& single) {
  const auto special = [](const std::string& name, int id) {
    return "{\"id\":" + std::to_string(id) + ",\"content\":\"" + name +
           R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)" +
           R"("special":true})";
  };
  SampleTools with;
  with.tokenizer = Tokenizer::from_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"</s>":2,"<s>":3,"<x>":4},"merges":[]},)"
      R"("added_tokens":[)" +
          special("</s>", 2) + "," + special("<s>", 3) + "," + special("<x>", 4) +
          R"(],"post_processor":{"type":"TemplateProcessing","special_tokens":{)"
          R"("</s>":{"ids":[2]},"<s>":{"ids":[3]},"<x>":{"ids":[4]}},"single":[)" +
          single + "]}}",
      "tokenizer.json");
  with.end_token = kEnd;
  with.vocab_size = 5;
  return with;
}

const std::string kText = R"({"Sequence":{"id":"A"}})";

std::string adds(const std::string& token) {
  return R"({"SpecialToken":{"id":")" + token + "\"}}";
}

void expect_sample(const std::string& line, const SampleTools& with,
                   const std::vector<std::int32_t>& tokens,
                   const std::vector<std::int32_t>& labels) {
  const Result result = read(line, with);
  ASSERT_EQ(result.samples.size(), 1) << line;
  EXPECT_TRUE(std::ranges::equal(result.samples[0].tokens, tokens))
      << line << testing::PrintToString(result.samples[0].tokens);
  // The label of a first token counts for nothing.
  EXPECT_TRUE(std::ranges::equal(result.samples[0].labels.subspan(1), std::span(labels).subspan(1)))
      << line << testing::PrintToString(result.samples[0].labels);
}

const std::string kCompletion = R"({"prompt": "ab", "completion": "ba"})";
const std::string kPlain = R"({"text": "ab"})";
constexpr std::int32_t kNo = kNotTrained;

TEST(SampleReader, SpecialTokensOfTheTokenizerAreNotTrainedInCompletions) {
  const SampleTools first = adding(adds("<s>") + "," + adds("<x>") + "," + kText);
  expect_sample(kCompletion, first, {3, 4, 0, 1, 1, 0, kEnd}, {kNo, kNo, kNo, kNo, 1, 0, kEnd});
  expect_sample(kPlain, first, {3, 4, 0, 1, kEnd}, {3, 4, 0, 1, kEnd});
  const SampleTools last = adding(kText + "," + adds("<x>"));
  expect_sample(kCompletion, last, {0, 1, 1, 0, 4, kEnd}, {kNo, kNo, 1, 0, kNo, kEnd});
}

TEST(SampleReader, AnEndTokenThatTheTokenizerAddsIsNotDoubled) {
  const SampleTools both = adding(adds("<s>") + "," + kText + "," + adds("</s>"));
  expect_sample(kCompletion, both, {3, 0, 1, 1, 0, kEnd}, {kNo, kNo, kNo, 1, 0, kEnd});
  expect_sample(kPlain, both, {3, 0, 1, kEnd}, {3, 0, 1, kEnd});
  expect_sample(R"({"prompt": "ab", "completion": ""})", both, {3, 0, 1, kEnd},
                {kNo, kNo, kNo, kEnd});
}

TEST(SampleReader, AnEndTokenThatATextEndsWithIsNotDoubled) {
  const SampleTools first = adding(adds("<s>") + "," + kText);
  expect_sample(R"({"prompt": "ab", "completion": "a</s>"})", first, {3, 0, 1, 0, kEnd},
                {kNo, kNo, kNo, 0, kEnd});
  expect_sample(R"({"text": "ab</s>"})", first, {3, 0, 1, kEnd}, {3, 0, 1, kEnd});
}

TEST(SampleReader, AnEndTokenOfAPromptOrABeginIsNotThatOfTheSample) {
  const SampleTools first = adding(adds("<s>") + "," + kText);
  expect_sample(R"({"prompt": "a</s>", "completion": ""})", first, {3, 0, kEnd, kEnd},
                {kNo, kNo, kNo, kEnd});
  const SampleTools same = adding(adds("</s>") + "," + kText);  // as models whose two are one
  expect_sample(R"({"text": ""})", same, {kEnd, kEnd}, {kEnd, kEnd});
  expect_sample(kCompletion, same, {kEnd, 0, 1, 1, 0, kEnd}, {kNo, kNo, kNo, 1, 0, kEnd});
}

TEST(SampleReader, CompletionsAndTextsAreRefusedWithoutATokenToEndThem) {
  SampleTools without = tools();
  without.end_token.reset();
  for (const std::string line : {R"({"prompt": "a", "completion": "b"})", R"({"text": "ab"})"}) {
    const std::string error = error_of(line, without);
    EXPECT_NE(error.find("data.jsonl line 1: no end-of-sequence token"), std::string::npos)
        << error;
  }
  EXPECT_EQ(read(R"({"input_ids": [5, 6], "labels": [5, 6]})", without).samples.size(), 1);
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "one"},)"
                 R"( {"role": "assistant", "content": "two"}]})",
                 without)
                .samples.size(),
            1);
}

TEST(SampleReader, LinesOfBlanksAreSkippedAndCounted) {
  const std::string line = R"({"input_ids": [5, 6], "labels": [5, 6]})";
  EXPECT_EQ(read("\n \t\r\n" + line + "\r\n  \n" + line).samples.size(), 2);
  EXPECT_TRUE(error_of(" \n\n" + line + "\n{").starts_with("data.jsonl line 4: ")) << "of the file";
}

}  // namespace
}  // namespace moesaic
