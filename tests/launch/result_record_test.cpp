#include "launch/verbs/result_record.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "launch/results/logprobs_json.h"

namespace moesaic {
namespace {

class ResultRecord : public testing::Test {
 protected:
  [[nodiscard]] Json record(const Prompt& prompt, const RequestList::Place& place,
                            const Finished& finished) const {
    return Json::parse(result_record({prompt, place, 4}, finished, tokenizer), "record");
  }
  Tokenizer tokenizer = Tokenizer::from_directory(MOESAIC_TEST_DATA "/demo-model");
};

Finished finished_text() {
  Finished finished;
  finished.request = 7;
  finished.tokens = {10, 11};
  finished.text = "a \"text\"";
  return finished;
}

TEST_F(ResultRecord, HasTheFieldsOfTheDocument) {
  RequestFields said;
  said.id = "\"x\"";
  const Prompt prompt{
      .text = "In", .where = "file line 1", .said = std::make_shared<const RequestFields>(said)};
  const Json line = record(prompt, {.prompt = 3}, finished_text());
  EXPECT_EQ(line.at("version").as_int(), 1);
  EXPECT_EQ(line.at("index").as_int(), 3);
  EXPECT_FALSE(line.contains("sample"));
  EXPECT_EQ(line.at("id").as_string(), "x");
  EXPECT_EQ(line.at("prompt").as_string(), "In");
  EXPECT_EQ(line.at("text").as_string(), "a \"text\"");
  EXPECT_EQ(line.at("ids").at(1).as_int(), 11);
  EXPECT_EQ(line.at("finish_reason").as_string(), "length");
  EXPECT_FALSE(line.contains("stop")) << "null";
  EXPECT_FALSE(line.contains("logprobs"));
  EXPECT_EQ(line.at("usage").at("prompt_tokens").as_int(), 4);
  EXPECT_EQ(line.at("usage").at("completion_tokens").as_int(), 2);
  EXPECT_EQ(line.at("usage").at("total_tokens").as_int(), 6);
}

TEST_F(ResultRecord, SaysWhatEndedTheText) {
  const Prompt prompt{.text = "In", .where = ""};
  Finished finished = finished_text();
  finished.reason = StopReason::end_of_sequence;
  finished.stop_token = 2045;
  const Json eos = record(prompt, {.prompt = 0, .sample = 1, .samples = 2}, finished);
  EXPECT_EQ(eos.at("finish_reason").as_string(), "stop");
  EXPECT_EQ(eos.at("stop").as_int(), 2045);
  EXPECT_EQ(eos.at("sample").as_int(), 1);
  finished.reason = StopReason::stop_string;
  finished.stop_token.reset();
  finished.stop_string = "\n";
  const Json string = record(prompt, {}, finished);
  EXPECT_EQ(string.at("finish_reason").as_string(), "stop");
  EXPECT_EQ(string.at("stop").as_string(), "\n");
}

TEST_F(ResultRecord, LogprobsHaveTheTextsOfTheirTokens) {
  const std::vector<std::int32_t> ids = tokenizer.encode("In the", false);
  ASSERT_GE(ids.size(), 2U);
  Finished finished = finished_text();
  finished.logprobs = {{{ids[0], -0.25F}, {ids[1], -0.125F}}, {{ids[1], -2.0F}, {ids[1], -2.0F}}};
  const Json content = record({.text = "", .where = ""}, {}, finished).at("logprobs").at("content");
  ASSERT_EQ(content.size(), 2);
  EXPECT_EQ(content.at(0).at("id").as_int(), ids[0]);
  EXPECT_EQ(content.at(0).at("token").as_string(), "In");
  EXPECT_EQ(content.at(0).at("logprob").as_double(), -0.25);
  EXPECT_EQ(content.at(0).at("top_logprobs").size(), 1);
  EXPECT_EQ(content.at(0).at("top_logprobs").at(0).at("token").as_string(), " the");
  EXPECT_EQ(content.at(1).at("token").as_string(), " the");
}

TEST(LogprobsJson, SpacesAtTheBeginningOfATokenAreKept) {
  // This tokenizer takes the space off the first token of a text.
  const Tokenizer tokenizer = Tokenizer::from_directory(MOESAIC_TEST_DATA "/tokenizers/mixtral");
  const std::vector<std::int32_t> ids = tokenizer.encode("In the", false);
  const std::vector<std::vector<TokenLogprob>> logprobs = {{{ids.front(), -1.0F}}};
  const Json json = Json::parse(logprobs_json(logprobs, tokenizer), "logprobs");
  EXPECT_TRUE(json.at("content").at(0).at("token").as_string().starts_with(" "));
}

}  // namespace
}  // namespace moesaic
