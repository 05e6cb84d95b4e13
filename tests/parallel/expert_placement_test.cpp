#include "src/parallel/expert_placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace moesaic {
namespace {

TEST(ExpertPlacement, every_expert_has_one_rank_and_slot) {
  for (std::int64_t experts = 1; experts <= 40; ++experts) {
    for (int ranks = 1; ranks <= experts; ++ranks) {
      const ExpertPlacement placement(experts, ranks);
      std::int64_t least = experts;
      std::int64_t most = 0;
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(placement.experts_start_idx(rank), next);
        const std::int64_t count = placement.num_local_experts(rank);
        least = std::min(least, count);
        most = std::max(most, count);
        for (std::int64_t slot = 0; slot < count; ++slot, ++next) {
          const ExpertId expert{static_cast<std::int32_t>(next)};
          EXPECT_EQ(placement.rank_of(expert), rank);
          EXPECT_EQ(placement.slot_of(expert), Slot{static_cast<std::int32_t>(slot)});
        }
      }
      EXPECT_EQ(next, experts);
      EXPECT_GE(least, 1);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(ExpertPlacement, takes_any_owners) {
  const ExpertPlacement placement({2, 0, 2, 1, 0}, 3);
  EXPECT_EQ(placement.num_experts(), 5);
  EXPECT_EQ(placement.num_ranks(), 3);
  EXPECT_EQ(placement.rank_of(ExpertId{3}), 1);
  EXPECT_EQ(placement.slot_of(ExpertId{0}), Slot{0});
  EXPECT_EQ(placement.slot_of(ExpertId{4}), Slot{1});
  const auto own = placement.experts_of(2);
  EXPECT_EQ(std::vector(own.begin(), own.end()), (std::vector{ExpertId{0}, ExpertId{2}}));
}

std::vector<ExpertId> experts_of(const ExpertPlacement& placement, int rank) {
  const auto own = placement.experts_of(rank);
  return {own.begin(), own.end()};
}

TEST(ExpertPlacement, round_robin_deals_like_cards) {
  const ExpertPlacement placement = ExpertPlacement::round_robin(5, 2);
  EXPECT_EQ(experts_of(placement, 0), (std::vector{ExpertId{0}, ExpertId{2}, ExpertId{4}}));
  EXPECT_EQ(experts_of(placement, 1), (std::vector{ExpertId{1}, ExpertId{3}}));
}

TEST(ExpertPlacement, balanced_gives_the_heaviest_to_whoever_has_least_and_room) {
  // Ranks 0 and 1 take two experts, rank 2 three, as in contiguous slices.
  const ExpertPlacement placement =
      ExpertPlacement::balanced(std::vector<double>{1, 50, 5, 5, 30, 0, 7}, 3);
  EXPECT_EQ(experts_of(placement, 0), (std::vector{ExpertId{1}, ExpertId{5}}));
  EXPECT_EQ(experts_of(placement, 1), (std::vector{ExpertId{0}, ExpertId{4}}));
  EXPECT_EQ(experts_of(placement, 2), (std::vector{ExpertId{2}, ExpertId{3}, ExpertId{6}}));
  const ExpertPlacement equal = ExpertPlacement::balanced(std::vector<double>(4, 2), 2);
  EXPECT_EQ(experts_of(equal, 0), (std::vector{ExpertId{0}, ExpertId{2}}));
}

TEST(HeldExperts, are_all_or_those_of_a_rank_in_each_layer) {
  EXPECT_TRUE(HeldExperts().contains(7, 3));
  const HeldExperts held(
      ModelPlacement({ExpertPlacement(4, 2), ExpertPlacement::round_robin(4, 2)}), 1);
  EXPECT_FALSE(held.contains(0, 1));
  EXPECT_TRUE(held.contains(1, 1));
}

TEST(ExpertPlacement, refuses_more_ranks_than_experts) {
  EXPECT_THROW(ExpertPlacement(4, 5), Error);
  EXPECT_THROW(ExpertPlacement(4, 0), Error);
}

}  // namespace
}  // namespace moesaic
