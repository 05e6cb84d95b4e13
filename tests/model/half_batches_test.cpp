#include "src/model/half_batches.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

TEST(HalfBatches, earlier_rows_come_first_and_a_sequence_may_be_cut) {
  Batch batch{.token_ids = {1, 2, 3, 4, 5}, .tokens = {}, .sequences = {}, .logit_rows = {4}};
  batch.tokens.resize(5);
  batch.sequences = {{.sequence = nullptr, .first_row = 0, .num_rows = 1, .position = 7},
                     {.sequence = nullptr, .first_row = 1, .num_rows = 4, .position = 20}};
  std::array<Batch, 2> halves;
  halve({}, halves);
  EXPECT_EQ(halves[1].rows(), 0);
  halve(batch, halves);
  const auto& [early, late] = halves;
  EXPECT_EQ(early.token_ids, (std::vector{1, 2, 3}));
  EXPECT_EQ(late.token_ids, (std::vector{4, 5}));
  ASSERT_EQ(early.sequences.size(), 2U);
  EXPECT_EQ(early.sequences[0].position, 7);
  EXPECT_EQ(early.sequences[1].first_row, 1);
  EXPECT_EQ(early.sequences[1].num_rows, 2);
  EXPECT_EQ(early.sequences[1].position, 20);
  ASSERT_EQ(late.sequences.size(), 1U);
  EXPECT_EQ(late.sequences[0].first_row, 0);
  EXPECT_EQ(late.sequences[0].num_rows, 2);
  EXPECT_EQ(late.sequences[0].position, 22);
}

/// Passes of `rows` rows until the rule has tried all; then what it wants.
bool choice(HalfBatchRule& rule, std::int64_t rows, double whole, double halved) {
  for (int pass = 0; pass < 5; ++pass) rule.add(rows, rule.wants_halves(rows) ? halved : whole);
  return rule.wants_halves(rows);
}

TEST(HalfBatches, the_rule_does_what_was_faster_for_as_many_rows) {
  HalfBatchRule rule;
  EXPECT_TRUE(choice(rule, 512, 2.0, 1.5));
  EXPECT_TRUE(rule.wants_halves(700));
  EXPECT_FALSE(rule.wants_halves(1024));
  EXPECT_FALSE(choice(rule, 1024, 2.0, 2.1));
  EXPECT_TRUE(rule.wants_halves(512));
  EXPECT_FALSE(choice(rule, HalfBatchRule::kLeastRows - 1, 2.0, 0.5));
}

TEST(HalfBatches, the_first_pass_does_not_count) {
  HalfBatchRule rule;
  rule.add(256, 100);
  EXPECT_FALSE(choice(rule, 256, 1.0, 1.2));
}

}  // namespace
}  // namespace moesaic
