#include "src/generate/schedule.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

std::vector<int> ranks_of(const std::vector<Schedule::Assignment>& assignments) {
  std::vector<int> ranks;
  for (const auto& assignment : assignments) ranks.push_back(assignment.rank);
  return ranks;
}

TEST(Schedule, requests_go_to_the_rank_with_the_fewest) {
  Schedule schedule(3, 2);
  EXPECT_FALSE(schedule.under_way());
  for (RequestId id = 0; id < 8; ++id) schedule.add(id, 5);
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(schedule.most_on_a_rank(), 2);
  EXPECT_TRUE(schedule.assign().empty()) << "two at a time on a rank";
  schedule.remove(4);
  const auto next = schedule.assign();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].request, 6);
  EXPECT_EQ(next[0].rank, 1);
}

TEST(Schedule, of_ranks_with_as_many_requests_the_one_with_shorter_prompts_takes_the_next) {
  Schedule schedule(2, 3);
  schedule.add(0, 1000);
  schedule.add(1, 10);
  schedule.add(2, 10);
  schedule.add(3, 10);
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 1, 1, 0}));
}

TEST(Schedule, what_ended_or_is_not_wanted_is_gone) {
  Schedule schedule(1, 1);
  for (RequestId id = 0; id < 3; ++id) schedule.add(id, 1);
  EXPECT_EQ(schedule.assign().size(), 1U);
  schedule.remove(1);
  schedule.remove(99);
  schedule.remove(0);
  EXPECT_TRUE(schedule.under_way()) << "one waits";
  const auto next = schedule.assign();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].request, 2);
  schedule.remove(2);
  EXPECT_FALSE(schedule.under_way());
}

}  // namespace
}  // namespace moesaic
