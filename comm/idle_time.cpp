#include "comm/idle_time.h"

#include <sched.h>

#include <thread>

namespace moesaic {
namespace {

// A rank that yields goes behind all that can run. Among waiting ranks that is right, and a
// hand-over takes microseconds. Among programs that compute it costs whole time slices, whereas a
// rank that has slept may run at once: where yielding turns out to be slow, sleep for a while.
constexpr std::chrono::milliseconds kSlowYield(2);
constexpr std::chrono::milliseconds kCrowdedFor(200);
constexpr std::chrono::microseconds kSleep(20);

}  // namespace

void IdleTime::pass() {
  for (RowExchange* exchange : exchanges_) (void)exchange->progress();
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
