#pragma once

#include <atomic>
#include <cstdint>

#include "base/core_yield.h"

namespace moesaic {

/// A number that threads wait for to change: they look for some microseconds, then sleep. Unlike
/// std::atomic::wait it does not yield where that costs time slices (CoreYield).
class WaitedWord {
 public:
  explicit WaitedWord(std::uint32_t value) : value_(value) {}

  /// Changes it: the value before. Acquires and releases, as all of these do.
  std::uint32_t add(std::uint32_t more) noexcept { return value_.fetch_add(more); }
  std::uint32_t subtract(std::uint32_t less) noexcept { return value_.fetch_sub(less); }
  std::uint32_t set_bits(std::uint32_t bits) noexcept { return value_.fetch_or(bits); }
  std::uint32_t clear_bits(std::uint32_t bits) noexcept { return value_.fetch_and(~bits); }
  /// After a change that others wait for.
  void wake_all() noexcept;

  /// Returns the value once it is another than `old`. `core` is the calling thread's.
  [[nodiscard]] std::uint32_t wait(std::uint32_t old, CoreYield& core) noexcept;

 private:
  std::atomic<std::uint32_t> value_;
  std::atomic<int> sleepers_{0};
};

}  // namespace moesaic
