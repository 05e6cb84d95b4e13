#pragma once

#include <chrono>

namespace moesaic {

/// How one thread that waits gives its core away, and notices what that costs. A thread that yields
/// goes behind all that can run. Among threads that wait that is right, and a hand-over takes
/// microseconds; among programs that compute it costs whole time slices, whereas a thread that has
/// slept may run at once.
class CoreYield {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Whether yielding has been slow of late: better to sleep.
  [[nodiscard]] bool is_slow(Time now) const noexcept { return now < slow_until_; }
  /// Yields, at the time `now`.
  void yield(Time now) noexcept;
  /// Yields, or sleeps for a moment where that is slow.
  void pass();

 private:
  Time slow_until_{};
};

}  // namespace moesaic
