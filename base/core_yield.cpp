#include "base/core_yield.h"

#include <sched.h>

#include <thread>

namespace moesaic {
namespace {

constexpr std::chrono::milliseconds kSlow(2);
constexpr std::chrono::milliseconds kSlowFor(200);
constexpr std::chrono::microseconds kSleep(20);

}  // namespace

void CoreYield::yield(Time now) noexcept {
  sched_yield();
  const Time end = std::chrono::steady_clock::now();
  if (end - now > kSlow) slow_until_ = end + kSlowFor;
}

void CoreYield::pass() {
  const Time now = std::chrono::steady_clock::now();
  if (is_slow(now)) {
    std::this_thread::sleep_for(kSleep);
  } else {
    yield(now);
  }
}

}  // namespace moesaic
