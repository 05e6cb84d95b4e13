#include "comm/idle_time.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace moesaic {
namespace {

// A rank that yields goes behind all that can run. Among waiting ranks that is right, and a
// hand-over takes microseconds. Among programs that compute it costs whole time slices, whereas a
// rank that has slept may run at once: where yielding turns out to be slow, sleep for a while.
constexpr std::chrono::milliseconds kSlowYield(2);
constexpr std::chrono::milliseconds kCrowdedFor(200);
constexpr std::chrono::microseconds kSleep(20);
// A long wait sleeps for a hundredth of what it has lasted, and so ends at most 1 % late.
constexpr std::chrono::milliseconds kLongWait(10);
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(2);

}  // namespace

void IdleTime::pass(std::chrono::nanoseconds waited) {
  for (RowExchange* exchange : exchanges_) (void)exchange->progress();
  if (waited > kLongWait) {
    std::this_thread::sleep_for(std::min(waited / 100, kLongestSleep));
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  if (begin < crowded_until_) {
    std::this_thread::sleep_for(kSleep);
    return;
  }
  sched_yield();
  const auto end = std::chrono::steady_clock::now();
  if (end - begin > kSlowYield) crowded_until_ = end + kCrowdedFor;
}

}  // namespace moesaic
