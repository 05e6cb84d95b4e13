#include "comm/idle_time.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace moesaic {
namespace {

// A long wait sleeps for a hundredth of what it has lasted, and so ends at most 1 % late.
constexpr std::chrono::milliseconds kLongWait(10);
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(2);
constexpr std::chrono::nanoseconds kShortSleep = std::chrono::microseconds(20);

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
    const std::chrono::nanoseconds longest = under_way_.empty() ? kLongestSleep : kShortSleep;
    std::this_thread::sleep_for(std::min(waited / 100, longest));
    return;
  }
  core_.pass();
}

}  // namespace moesaic
