// Which experts run next while rows come in.

#include "src/moe/slot_queue.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace moesaic {
namespace {

/// Slots of 2, 0, 1 and 3 outputs, which work on sources 0 to 5.
ExecutePlan some_plan() {
  ExecutePlan plan;
  plan.slot_begin = {0, 2, 2, 3, 6};
  plan.output_sources = {0, 1, 2, 3, 4, 5};
  return plan;
}

/// What a queue hands out, as "first+count", until nothing is ready.
std::vector<std::string> drain(SlotQueue& queue, const std::set<std::int64_t>& here) {
  std::vector<std::string> ranges;
  while (const auto range = queue.next([&](std::int64_t s) { return here.contains(s); })) {
    ranges.push_back(std::to_string(range->first) + "+" + std::to_string(range->count));
  }
  return ranges;
}

using Ranges = std::vector<std::string>;

TEST(SlotQueue, gives_all_at_once_if_all_is_here) {
  const ExecutePlan plan = some_plan();
  SlotQueue queue;
  queue.start(plan, 100);
  EXPECT_EQ(drain(queue, {0, 1, 2, 3, 4, 5}), Ranges({"0+4"}));
  EXPECT_TRUE(queue.is_empty());
}

TEST(SlotQueue, gives_some_at_a_time_so_that_results_can_leave) {
  const ExecutePlan plan = some_plan();
  SlotQueue queue;
  queue.start(plan, 2);
  EXPECT_EQ(drain(queue, {0, 1, 2, 3, 4, 5}), Ranges({"0+1", "1+3"}));
  queue.start(plan, 0);
  EXPECT_EQ(drain(queue, {0, 1, 2, 3, 4, 5}), Ranges({"0+1", "1+1", "2+1", "3+1"}));
}

TEST(SlotQueue, a_slot_runs_when_its_own_rows_are_here) {
  const ExecutePlan plan = some_plan();
  SlotQueue queue;
  queue.start(plan, 100);
  EXPECT_EQ(drain(queue, {0, 2, 3, 5}), Ranges({"1+2"}));
  EXPECT_FALSE(queue.is_empty());
  EXPECT_EQ(drain(queue, {0, 1, 2, 3, 5}), Ranges({"0+1"}));
  EXPECT_EQ(drain(queue, {0, 1, 2, 3, 5}), Ranges());
  EXPECT_FALSE(queue.is_empty());
  EXPECT_EQ(drain(queue, {0, 1, 2, 3, 4, 5}), Ranges({"3+1"}));
  EXPECT_TRUE(queue.is_empty());
}

TEST(SlotQueue, a_rank_without_experts_or_rows_has_nothing_to_wait_for) {
  ExecutePlan plan;
  plan.slot_begin = {0};
  SlotQueue queue;
  queue.start(plan, 1);
  EXPECT_TRUE(queue.is_empty());
  plan.slot_begin = {0, 0, 0};
  queue.start(plan, 1);
  EXPECT_EQ(drain(queue, {}), Ranges({"0+2"}));
  EXPECT_TRUE(queue.is_empty());
}

}  // namespace
}  // namespace moesaic
