#include "comm/idle_time.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace moesaic {
namespace {

constexpr std::chrono::milliseconds kLongWait(10);
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(2);
constexpr std::chrono::nanoseconds kShortSleep = std::chrono::microseconds(20);

/// Between two looks of a long wait: a hundredth of what it has lasted, so that it ends at most 1 %
/// late. What is under way needs looks to move, and gets them a hundred times as often.
std::chrono::nanoseconds sleep_of(std::chrono::nanoseconds waited, bool is_under_way) {
  if (!is_under_way) return std::min(waited / 100, kLongestSleep);
  return std::clamp(waited / 10000, kShortSleep, kLongestSleep);
}

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
  if (waited > kLongWait) {
    std::this_thread::sleep_for(sleep_of(waited, !under_way_.empty()));
    return;
  }
  core_.pass();
}

}  // namespace moesaic
