#include "comm/idle_time.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

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

void IdleTime::work() {
  for (std::size_t i = 0; i < under_way_.size();) {
    UnderWay* const operation = under_way_[i];
    (void)operation->advance();  // takes itself off the list when it is done
    if (i < under_way_.size() && under_way_[i] == operation) ++i;
  }
}

void IdleTime::throw_kept() {
  if (kept_ != nullptr) std::rethrow_exception(std::exchange(kept_, nullptr));
}

void IdleTime::pass(std::chrono::nanoseconds waited) {
  work();
  if (waited > kLongWait) {  // what is under way needs looks to move
    const std::chrono::nanoseconds longest = under_way_.empty() ? kLongestSleep : kSleep;
    std::this_thread::sleep_for(std::min(waited / 100, longest));
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
