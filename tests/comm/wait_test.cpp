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

}  // namespace
}  // namespace moesaic
