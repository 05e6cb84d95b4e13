// Which tokens of a text stand for those of a step.

#include "src/parallel/step_choices.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moesaic {
namespace {

constexpr std::int64_t kExperts = 1 << 16;

/// A text whose token at position p chooses the experts 2p and 2p + 1: they tell the position.
ExpertPopularity text_of(std::int64_t positions) {
  std::vector<ExpertId> chosen;
  for (std::int64_t i = 0; i < 2 * positions; ++i) {
    chosen.push_back(ExpertId{static_cast<std::int32_t>(i)});
  }
  return ExpertPopularity::chosen({std::move(chosen)}, kExperts, 2, "test");
}

struct Looked {
  std::int64_t samples = 0;
  std::vector<std::vector<std::int64_t>> positions{};  // [samples][tokens]
};

Looked look(const ExpertPopularity& text, std::int64_t tokens, std::int64_t texts, int ranks = 1) {
  const ExpertQuestion question{.experts = kExperts, .topk = 2, .tokens = tokens, .texts = texts};
  StepChoices choices(question, {.ranks = ranks}, text, 0);
  Looked looked{.samples = choices.samples()};
  for (std::int64_t sample = 0; sample < choices.samples(); ++sample) {
    std::vector<std::int64_t>& positions = looked.positions.emplace_back();
    for (std::int64_t token = 0; token < choices.tokens(); ++token) {
      const std::span<const ExpertId> experts = choices.experts_of(sample, token);
      EXPECT_EQ(static_cast<std::int64_t>(experts[0]) + 1, static_cast<std::int64_t>(experts[1]));
      positions.push_back(static_cast<std::int64_t>(experts[0]) / 2);
    }
  }
  return looked;
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

TEST(StepChoices, of_as_many_tokens_as_the_text_has_are_the_texts) {
  for (const std::int64_t texts : {1, 3, 4}) {
    const Looked looked = look(text_of(100), 100, texts);
    ASSERT_EQ(looked.samples, 1);
    EXPECT_EQ(looked.positions.front(), numbers(100));
  }
  EXPECT_EQ(look(text_of(101), 100, 0, 4).positions.front(), numbers(100));  // a part a rank
}

TEST(StepChoices, of_a_step_with_a_token_of_each_text_are_spread_over_it) {
  const Looked looked = look(text_of(4000), 4, 4);
  ASSERT_EQ(looked.samples, 16);
  EXPECT_EQ(looked.positions[0], (std::vector<std::int64_t>{0, 1000, 2000, 3000}));
  EXPECT_EQ(looked.positions[1], (std::vector<std::int64_t>{62, 1062, 2062, 3062}));
  EXPECT_EQ(looked.positions[15], (std::vector<std::int64_t>{930, 1930, 2930, 3930}));
}

TEST(StepChoices, follow_on_one_another_in_a_text_and_stay_inside) {
  for (const std::int64_t known : {1, 2, 7, 50, 97, 300}) {
    for (const std::int64_t tokens : {1, 2, 3, 10, 49, 97, 1000}) {
      for (const std::int64_t texts : {1, 2, 5}) {
        const Looked looked = look(text_of(known), tokens, texts);
        for (const std::vector<std::int64_t>& positions : looked.positions) {
          EXPECT_EQ(std::ssize(positions), std::min(tokens, known));
          EXPECT_LT(positions.back(), known);
          const auto back = std::ranges::adjacent_find(positions, std::ranges::greater_equal());
          EXPECT_EQ(back, positions.end());
        }
      }
    }
  }
}

TEST(StepChoices, are_drawn_where_nobody_has_looked) {
  const auto even = ExpertPopularity::even();
  const ExpertQuestion few{.experts = 8, .topk = 2, .tokens = 512};
  EXPECT_EQ(StepChoices(few, {}, even, 0).samples(), 8);
  const ExpertQuestion many{.experts = 8, .topk = 2, .tokens = 100000};
  EXPECT_EQ(StepChoices(many, {}, even, 0).samples(), 1);
  EXPECT_EQ(StepChoices(many, {}, even, 0).tokens(), StepChoices::kMostTokens);
}

}  // namespace
}  // namespace moesaic
