#include "comm/wait.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <bit>
#include <thread>

namespace moesaic {
namespace {

using namespace std::chrono_literals;

TEST(WaitPolicy, looks_often_only_if_each_rank_has_a_processor) {
  IdleTime idle;
  Processors three{};
  three[0] = 0b101;
  three[63] = 1;
  EXPECT_GT(wait_policy(1s, 3, three, idle).spin_looks, 0);
  EXPECT_EQ(wait_policy(1s, 4, three, idle).spin_looks, 0);
}

TEST(WaitPolicy, counts_the_processors_of_the_binding) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &all)) last = cpu;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    int usable = 0;
    for (const std::uint64_t word : usable_processors()) usable += std::popcount(word);
    EXPECT_EQ(usable, 1);
  }).join();
}

class NeverDone final : public UnderWay {
 public:
  bool advance() override {
    ++looks;
    return false;
  }
  int looks = 0;
};

std::chrono::nanoseconds time_of_pass(IdleTime& idle, std::chrono::nanoseconds waited) {
  const auto begin = std::chrono::steady_clock::now();
  idle.pass(waited);
  return std::chrono::steady_clock::now() - begin;
}

// Without work a rank lends its experts: an exchange is under way then, for as long as it takes.
TEST(IdleTime, sleeps_the_longer_the_longer_a_wait_lasts_also_while_rows_are_under_way) {
  IdleTime idle;
  EXPECT_GE(time_of_pass(idle, 50ms), 500us);
  EXPECT_GE(time_of_pass(idle, 100s), 2ms);
  NeverDone rows;
  idle.add(rows);
  EXPECT_GE(time_of_pass(idle, 50ms), 20us);
  EXPECT_GE(time_of_pass(idle, 5s), 500us);
  EXPECT_GE(time_of_pass(idle, 100s), 2ms);
  EXPECT_EQ(rows.looks, 3);
}

}  // namespace
}  // namespace moesaic
