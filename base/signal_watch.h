#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moesaic {

/// Hears signals that would have ended this process, for as long as it lives. A second one ends the
/// process at once, as it would have without a watch; within `same_request` of the first one it is
/// the same request, since launchers and batch systems both pass one on. Signals that were
/// ignored stay so (nohup), and those that are ignored when it ends. A signal has one watch at a
/// time: the newest.
class SignalWatch {
 public:
  explicit SignalWatch(std::span<const int> signals,
                       std::chrono::milliseconds same_request = std::chrono::milliseconds(500));
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The first signal that came. For any thread.
  [[nodiscard]] std::optional<int> caught() const noexcept;
  /// Whether this one has come, first or later.
  [[nodiscard]] bool has_heard(int signal) const noexcept {
    return (heard_.load(std::memory_order_relaxed) >> signal & 1) != 0;
  }
  /// As if none had come.
  void forget() noexcept;

 private:
  struct Watched {
    int signal = 0;
    SignalWatch* watch_before = nullptr;
    struct sigaction action_before {};
  };
  static void handle(int signal);
  void hear(int signal) noexcept;

  std::int64_t same_request_ms_;
  std::vector<Watched> watched_;
  std::atomic<int> caught_ = 0;
  std::atomic<std::uint64_t> heard_ = 0;  // a bit for each signal
  std::atomic<std::int64_t> caught_ms_ = 0;
};

}  // namespace moesaic
