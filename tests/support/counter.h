#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace moesaic::test {

/// What several threads have done, for one that waits for it.
class Counter {
 public:
  void add() { ++count_; }
  [[nodiscard]] int count() const { return count_; }
  /// Returns when there are so many, or after a minute; calls `meanwhile` again and again.
  void wait_for(int wanted, const std::function<void()>& meanwhile) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (count_ < wanted && std::chrono::steady_clock::now() < limit) {
      meanwhile();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::atomic<int> count_ = 0;
};

}  // namespace moesaic::test
