// How moesaic sft makes samples of lines: formats, turns, and the token that ends a text.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/sft_program.h"
#include "tests/support/model_copies.h"

namespace moesaic::test {
namespace {

/// A member of a file of JSON that stands in a line of its own takes another value.
void set_member(const std::string& path, const std::string& member, const std::string& value) {
  std::string text = read_text(path);
  const std::string key = "\"" + member + "\": ";
  const std::size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << path;
  const std::size_t begin = at + key.size();
  text.replace(begin, text.find_first_of(",\n", begin) - begin, value);
  write_text(path, text);
}

class SftData : public testing::Test {
 protected:
  /// The lines that --samples-out writes of `lines`.
  [[nodiscard]] std::string samples_of(const std::string& lines, const Arguments& more = {}) const {
    write_text(data_, lines);
    const ProgramResult result = run_moesaic(sft("", joined({"--samples-out", "-"}, more), data_));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result.out;
  }

  TemporaryDirectory directory_;
  std::string data_ = directory_.path_of("data.jsonl");
};

const std::string kTwoTurns =
    R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},)"
    R"( {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})"
    "\n";

std::int64_t trained_tokens(const std::string& line) {
  std::int64_t count = 0;
  Json::parse(line, "sample").at("labels").for_each([&](const std::string&, const Json& label) {
    if (label.as_int() >= 0) ++count;
  });
  return count;
}

TEST_F(SftData, TheTurnsThatAreTrainedAreThoseThatAreAskedFor) {
  const std::string all = samples_of(kTwoTurns);
  EXPECT_EQ(samples_of(kTwoTurns, {"--train-on", "all"}), all);
  const std::string last = samples_of(kTwoTurns, {"--train-on", "last"});
  EXPECT_GT(trained_tokens(last), 0);
  EXPECT_GT(trained_tokens(all), trained_tokens(last));
}

TEST_F(SftData, OfAPromptAndACompletionOfMessagesTheCompletionIsTrained) {
  const std::string line =
      R"({"prompt": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},)"
      R"( {"role": "user", "content": "three"}],)"
      R"( "completion": [{"role": "assistant", "content": "four"}]})"
      "\n";
  const std::string last = samples_of(kTwoTurns, {"--train-on", "last"});
  EXPECT_EQ(samples_of(line), last);
  EXPECT_EQ(samples_of(line, {"--data-format", "completion-messages"}), last);
  write_text(data_, line);
  expect_failure(
      run_ranks(3, sft(directory_.path_of("out"), {"--data-format", "completion"}, data_)), 3,
      {data_ + " line 1: ", "lists of messages", "completion-messages"});
}

TEST_F(SftData, TheFormatIsTheOneThatIsAskedFor) {
  const std::string text = R"("text": "In the beginning")";
  const std::string completion = R"("prompt": "And God", "completion": " said")";
  const std::string both = "{" + text + ", " + completion + "}\n";
  const std::string as_completion = samples_of("{" + completion + "}\n");
  EXPECT_EQ(samples_of(both), as_completion) << "the first that fits";
  EXPECT_EQ(samples_of(both, {"--data-format", "completion"}), as_completion);
  EXPECT_EQ(samples_of(both, {"--data-format", "text"}), samples_of("{" + text + "}\n"));
}

TEST_F(SftData, TokensThatTheTokenizerAddsAreThereAndTheEndStandsOnce) {
  const std::string model = directory_.path_of("model");
  copy_model("demo-model", model);
  const std::string completion = R"({"prompt": "And God", "completion": " said"})"
                                 "\n";
  const std::string text = "{\"text\": \"In the beginning\"}\n";
  const auto ids = [](const std::string& line, const char* member) {
    std::vector<std::int64_t> found;
    Json::parse(line, "sample").at(member).for_each([&](const std::string&, const Json& id) {
      found.push_back(id.as_int());
    });
    return found;
  };
  constexpr std::int64_t kBegin = 2046;
  constexpr std::int64_t kEnd = 2045;
  std::map<std::string, std::vector<std::int64_t>> expected;
  for (const std::string& line : {completion, text}) {
    expected[line] = ids(samples_of(line), "input_ids");
    EXPECT_EQ(expected[line].back(), kEnd);
    expected[line].insert(expected[line].begin(), kBegin);
  }
  const std::string begin = R"({"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}})";
  const std::string begin_and_end = begin + R"(, {"SpecialToken": {"id": "e"}})";
  for (const std::string& single : {begin, begin_and_end}) {
    std::filesystem::copy_file(kDemo + "/tokenizer.json", model + "/tokenizer.json",
                               std::filesystem::copy_options::overwrite_existing);
    set_member(model + "/tokenizer.json", "post_processor",
               R"({"type": "TemplateProcessing", "special_tokens": {"b": {"ids": [2046]}, )"
               R"("e": {"ids": [2045]}}, "single": [)" +
                   single + "]}");
    for (const std::string& line : {completion, text}) {
      const std::string sample = samples_of(line, {"-m", model});
      EXPECT_EQ(ids(sample, "input_ids"), expected[line]) << single;
      const std::vector<std::int64_t> labels = ids(sample, "labels");
      EXPECT_EQ(labels.back(), kEnd) << single;
      EXPECT_EQ(trained_tokens(samples_of(line)) + (line == text ? 1 : 0), trained_tokens(sample))
          << "the labels of a text are all of its tokens";
      if (line == completion) {
        EXPECT_EQ(labels.front(), -100);
      }
    }
  }
}

TEST_F(SftData, WhatTheConfigurationAsksTrainingForInVainIsTold) {
  const std::string model = directory_.path_of("model");
  copy_model("demo-model", model);
  const std::string out = directory_.path_of("out");
  const auto told = [&] {
    const ProgramResult result =
        run_ranks(2, sft(out, {"-m", model, "--overwrite", "--max-steps", "1"}));
    expect_done(result);
    return result.err;
  };
  EXPECT_EQ(told().find("not applied"), std::string::npos);
  set_member(model + "/config.json", "attention_dropout", "0.1");
  set_member(model + "/config.json", "output_router_logits", "true");
  EXPECT_NE(told().find("warning: config.json: attention_dropout 0.1, output_router_logits: "
                        "not applied"),
            std::string::npos);
}

TEST_F(SftData, TextsAndCompletionsNeedATokenThatEndsThem) {
  const std::string model = directory_.path_of("model");
  copy_model("demo-model", model);
  const std::string text = "{\"text\": \"In the beginning\"}\n";
  const std::string completion = R"({"prompt": "And God", "completion": " said"})";
  const std::string with_end = samples_of(text);
  set_member(model + "/tokenizer_config.json", "eos_token", "\"<|end|>\"");
  EXPECT_EQ(samples_of(text, {"-m", model}), with_end) << "config.json has one";
  const std::string unknown =
      "eos_token of tokenizer_config.json is \"<|end|>\", which tokenizer.json does not have";
  const std::string out = directory_.path_of("out");
  const auto refused = [&](const std::string& lines, const std::vector<std::string>& texts) {
    write_text(data_, lines);
    expect_failure(run_ranks(2, sft(out, {"-m", model}, data_)), 3, texts);
  };
  set_member(model + "/generation_config.json", "eos_token_id", "5000");
  refused(text, {model, unknown, "eos_token_id of config.json is 5000"});
  for (const char* const file : {"/generation_config.json", "/config.json"}) {
    set_member(model + file, "eos_token_id", "null");
  }
  refused(completion, {model, unknown, "eos_token_id of config.json is missing", "input_ids"});
  set_member(model + "/tokenizer_config.json", "eos_token", "null");
  refused(text, {model, "eos_token of tokenizer_config.json is missing"});
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(samples_of(kTwoTurns, {"-m", model}), samples_of(kTwoTurns)) << "a template ends turns";
  const std::string tokens = "{\"input_ids\": [5, 6], \"labels\": [5, 6]}\n";
  EXPECT_EQ(samples_of(tokens, {"-m", model}), tokens);
}

}  // namespace
}  // namespace moesaic::test
