#include "src/generate/schedule.h"

#include <gtest/gtest.h>

namespace moesaic {
namespace {

Request prompt_of(std::size_t tokens, std::optional<std::int64_t> group = {},
                  std::int64_t new_tokens = 1) {
  Request request;
  request.max_new_tokens = new_tokens;
  request.tokens.resize(tokens);
  request.group = group;
  return request;
}

std::vector<int> ranks_of(const std::vector<Schedule::Assignment>& assignments) {
  std::vector<int> ranks;
  for (const auto& assignment : assignments) ranks.push_back(assignment.rank);
  return ranks;
}

TEST(Schedule, requests_go_to_the_rank_with_the_fewest) {
  Schedule schedule(3, 2);
  EXPECT_FALSE(schedule.under_way());
  for (RequestId id = 0; id < 8; ++id) schedule.add(id, prompt_of(5));
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
  schedule.add(0, prompt_of(1000));
  schedule.add(1, prompt_of(10));
  schedule.add(2, prompt_of(10));
  schedule.add(3, prompt_of(10));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 1, 1, 0}));
}

TEST(Schedule, prompts_of_requests_that_have_ended_count_no_more) {
  Schedule schedule(2, 3);
  schedule.add(0, prompt_of(1000));
  schedule.add(1, prompt_of(10));
  schedule.add(2, prompt_of(10));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 1, 1}));
  schedule.remove(0);
  schedule.add(3, prompt_of(10));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0}));
  schedule.remove(2);
  schedule.add(4, prompt_of(10));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0})) << "as many, as long: the first";
}

TEST(Schedule, what_ended_or_is_not_wanted_is_gone) {
  Schedule schedule(1, 1);
  for (RequestId id = 0; id < 3; ++id) schedule.add(id, prompt_of(1));
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

TEST(Schedule, a_group_stays_on_a_rank_while_there_is_room) {
  Schedule schedule(3, 4);
  schedule.add(0, prompt_of(5));
  for (RequestId id = 1; id < 7; ++id) schedule.add(id, prompt_of(5, 70));
  schedule.add(7, prompt_of(5, 71));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 1, 1, 1, 1, 2, 2, 0}))
      << "a full rank keeps nobody waiting";
  for (RequestId id = 1; id < 7; ++id) schedule.remove(id);
  schedule.add(8, prompt_of(5, 70));
  EXPECT_EQ(ranks_of(schedule.assign()), std::vector<int>{2}) << "which took the last of it";
  schedule.add(9, prompt_of(5, 70));
  EXPECT_EQ(ranks_of(schedule.assign()), std::vector<int>{2});
}

TEST(Schedule, a_group_of_a_short_prompt_goes_over_the_ranks) {
  Schedule schedule(2, 8);
  for (RequestId id = 0; id < 8; ++id) schedule.add(id, prompt_of(5, 70, 300));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 1, 1, 0, 0, 1, 1, 0}));
}

TEST(Schedule, a_group_stays_as_long_as_it_generates_no_more_than_its_prompt_costs_another_rank) {
  Schedule schedule(2, 8);
  for (RequestId id = 0; id < 6; ++id) schedule.add(id, prompt_of(600, 70, 300));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 0, 0, 1, 1, 1}))
      << "two texts more are 600 tokens, three are more";
}

TEST(Schedule, a_group_that_only_reads_its_prompt_stays) {
  Schedule schedule(2, 4);
  for (RequestId id = 0; id < 3; ++id) schedule.add(id, prompt_of(3, 70, 0));
  EXPECT_EQ(ranks_of(schedule.assign()), (std::vector<int>{0, 0, 0}));
}

/// Whether a request of `group` goes to rank 1, which took the last of it, though rank 0 has as
/// little to do; it ends at once.
bool is_remembered(Schedule& schedule, RequestId id, std::int64_t group) {
  schedule.add(id, prompt_of(5, group));
  const bool is = ranks_of(schedule.assign()) == std::vector<int>{1};
  schedule.remove(id);
  return is;
}

TEST(Schedule, groups_that_come_one_after_the_other_go_over_the_ranks) {
  Schedule schedule(3, 2);
  std::vector<int> ranks;
  for (const std::int64_t group : {1, 2, 3, 1, 4, 2, 3, 4}) {
    schedule.add(group, prompt_of(5, group));
    ranks.push_back(ranks_of(schedule.assign()).at(0));
    schedule.remove(group);
  }
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2, 0, 0, 1, 2, 0}));
}

TEST(Schedule, the_last_groups_that_have_ended_are_remembered) {
  Schedule schedule(2, 2);
  schedule.add(0, prompt_of(5));  // keeps rank 0 busy
  for (RequestId id = 1; id < 6; ++id) {
    if (id == 5) (void)is_remembered(schedule, 10, 1);  // used again: no more the oldest
    schedule.add(id, prompt_of(5, id));
    (void)schedule.assign();
    schedule.remove(id);
  }
  schedule.remove(0);
  EXPECT_TRUE(is_remembered(schedule, 11, 1));
  EXPECT_TRUE(is_remembered(schedule, 12, 3));
  EXPECT_TRUE(is_remembered(schedule, 13, 4));
  EXPECT_TRUE(is_remembered(schedule, 14, 5));
  EXPECT_FALSE(is_remembered(schedule, 15, 2)) << "four are remembered";
}

}  // namespace
}  // namespace moesaic
