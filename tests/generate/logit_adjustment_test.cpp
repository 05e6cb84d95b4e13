#include "src/generate/logit_adjustment.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/generate/sampling_case.h"

namespace moesaic {
namespace {

std::vector<float> adjusted(const SamplingOptions& options, const std::vector<float>& logits,
                            const TextSoFar& text) {
  LogitAdjustment adjustment(options);
  const auto result = adjustment.apply(logits, text);
  return {result.begin(), result.end()};
}

TEST(LogitAdjustment, has_the_bits_of_transformers) {
  const Json cases = Json::read_file(MOESAIC_TEST_DATA "/sampling.json");
  int changed = 0;
  for (std::int64_t number = 0; number < cases.size(); ++number) {
    const SamplingCase golden = read_sampling_case(cases.at(number));
    EXPECT_EQ(adjusted(golden.options, golden.logits, golden.text()), golden.adjusted)
        << "case " << number;
    changed += golden.adjusted != golden.logits ? 1 : 0;
  }
  EXPECT_GE(changed, 7);
}

TEST(LogitAdjustment, copies_nothing_without_need) {
  const std::vector<float> logits = {1, 2, 3};
  LogitAdjustment adjustment({.penalty_last_n = 5});
  EXPECT_EQ(adjustment.apply(logits, {}).data(), logits.data());
  LogitAdjustment none({.repetition_penalty = 2, .penalty_last_n = 0});
  EXPECT_EQ(none.apply(logits, {}).data(), logits.data());
}

TEST(LogitAdjustment, penalties_look_at_the_last_tokens_alone) {
  const std::vector<float> logits = {1, 1, 1, 1, 1};
  const std::vector<std::int32_t> tokens = {0, 1, 2, 3, 3};
  const auto of = [&](std::int64_t last, const SamplingOptions& penalties) {
    SamplingOptions options = penalties;
    options.penalty_last_n = last;
    return adjusted(options, logits, {tokens, 2});
  };
  const SamplingOptions repetition{.repetition_penalty = 2};
  EXPECT_EQ(of(-1, repetition), (std::vector<float>{0.5F, 0.5F, 0.5F, 0.5F, 1}));
  EXPECT_EQ(of(99, repetition), (std::vector<float>{0.5F, 0.5F, 0.5F, 0.5F, 1}));
  EXPECT_EQ(of(3, repetition), (std::vector<float>{1, 1, 0.5F, 0.5F, 1}));
  EXPECT_EQ(of(1, repetition), (std::vector<float>{1, 1, 1, 0.5F, 1}));
  const SamplingOptions others{.frequency_penalty = 1, .presence_penalty = 10};
  EXPECT_EQ(of(-1, others), (std::vector<float>{1, 1, -10, -11, 1})) << "not of the prompt";
  EXPECT_EQ(of(1, others), (std::vector<float>{1, 1, 1, -10, 1}));
}

TEST(LogitAdjustment, a_growing_text_counts_as_one_that_is_there_at_once) {
  const SamplingOptions penalties{
      .repetition_penalty = 1.3, .frequency_penalty = 0.5, .presence_penalty = 0.25};
  std::mt19937_64 random(1);
  for (const std::int64_t last : {-1, 1, 4, 30}) {
    SamplingOptions options = penalties;
    options.penalty_last_n = last;
    LogitAdjustment growing(options);
    const std::vector<float> logits = {-2, -1, 0, 1, 2, 3, 4, 5};
    std::vector<std::int32_t> tokens(5, 3);
    for (int step = 0; step < 60; ++step) {
      for (std::uint64_t more = random() % 3; more > 0; --more) {
        tokens.push_back(static_cast<std::int32_t>(random() % logits.size()));
      }
      const TextSoFar text{tokens, 5};
      const auto result = growing.apply(logits, text);
      ASSERT_EQ(std::vector<float>(result.begin(), result.end()), adjusted(options, logits, text));
    }
  }
}

}  // namespace
}  // namespace moesaic
