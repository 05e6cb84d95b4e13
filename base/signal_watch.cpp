#include "base/signal_watch.h"

#include <time.h>

#include <array>
#include <cerrno>

namespace moesaic {
namespace {

/// The watch of each signal. A handler gets nothing but the signal's number, so this has to be
/// where it can be found without an object; nothing else uses it.
std::array<std::atomic<SignalWatch*>, NSIG>& watches() noexcept {
  static constinit std::array<std::atomic<SignalWatch*>, NSIG> all{};
  return all;
}

/// Never 0. May be called in a signal handler.
std::int64_t now_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return 1 + std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

}  // namespace

SignalWatch::SignalWatch(std::span<const int> signals, std::chrono::milliseconds same_request)
    : same_request_ms_(same_request.count()) {
  watched_.reserve(signals.size());
  for (const int signal : signals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    auto& place = watches()[static_cast<std::size_t>(signal)];
    watched_.push_back({signal, place.exchange(this), before});
    struct sigaction action {};
    action.sa_handler = &SignalWatch::handle;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (auto entry = watched_.rbegin(); entry != watched_.rend(); ++entry) {
    struct sigaction now {};
    ::sigaction(entry->signal, nullptr, &now);
    const bool is_ignored = now.sa_handler == SIG_IGN;  // since then: it stays so
    if (!is_ignored) ::sigaction(entry->signal, &entry->action_before, nullptr);
    watches()[static_cast<std::size_t>(entry->signal)] = entry->watch_before;
  }
}

std::optional<int> SignalWatch::caught() const noexcept {
  const int signal = caught_.load(std::memory_order_relaxed);
  return signal == 0 ? std::nullopt : std::optional(signal);
}

void SignalWatch::forget() noexcept {
  caught_.store(0, std::memory_order_relaxed);
  heard_.store(0, std::memory_order_relaxed);
  caught_ms_.store(0, std::memory_order_relaxed);
}

void SignalWatch::handle(int signal) {
  const int error = errno;
  SignalWatch* watch = watches()[static_cast<std::size_t>(signal)].load();
  if (watch != nullptr) watch->hear(signal);
  errno = error;
}

void SignalWatch::hear(int signal) noexcept {
  heard_.fetch_or(std::uint64_t{1} << signal, std::memory_order_relaxed);
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  if (caught_ms_.compare_exchange_strong(first, now)) {
    caught_.store(signal, std::memory_order_relaxed);
  } else if (now - first >= same_request_ms_) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // comes as soon as the handler returns
  }
}

}  // namespace moesaic
