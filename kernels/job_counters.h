#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/core_yield.h"
#include "base/pause.h"

namespace moesaic {

/// How many jobs each of some pieces of work still has, counted down by the threads that do them.
class JobCounters {
 public:
  /// `count` pieces without jobs. Not while threads are at work.
  void reset(std::size_t count) {
    if (count > capacity_) {
      left_ = std::make_unique<std::atomic<std::int32_t>[]>(count);
      capacity_ = count;
    }
    for (std::size_t i = 0; i < count; ++i) left_[i].store(0, std::memory_order_relaxed);
  }
  void add(std::size_t piece) { left_[piece].fetch_add(1, std::memory_order_relaxed); }

  void done(std::size_t piece) { left_[piece].fetch_sub(1, std::memory_order_release); }

  /// Returns when all jobs of the piece are done, or false once `aborted` is set. They have to be
  /// at work already, or waiting would never end: jobs that wait come behind those that they wait
  /// for.
  [[nodiscard]] bool wait(std::size_t piece, const std::atomic<bool>& aborted) const {
    constexpr int kLooksPerYield = 64;
    static thread_local CoreYield core;
    for (int look = 1; left_[piece].load(std::memory_order_acquire) > 0; ++look) {
      if (aborted.load(std::memory_order_relaxed)) return false;
      pause_core();
      if (look % kLooksPerYield == 0) core.pass();
    }
    return true;
  }

 private:
  std::unique_ptr<std::atomic<std::int32_t>[]> left_;
  std::size_t capacity_ = 0;
};

}  // namespace moesaic
