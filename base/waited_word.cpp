#include "base/waited_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#include "base/pause.h"

namespace moesaic {
namespace {

constexpr std::chrono::microseconds kSpin(100);
constexpr int kLooksPerYield = 64;

long futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) noexcept {
  static_assert(sizeof word == sizeof(std::uint32_t));
  return syscall(SYS_futex, &word, operation, value, nullptr);
}

}  // namespace

// Either the waker sees the sleeper, or the sleeper the new value: all of these are sequentially
// consistent. The kernel compares once more before it lets a thread sleep.
void WaitedWord::wake_all() noexcept {
  if (sleepers_.load() > 0) futex(value_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

std::uint32_t WaitedWord::wait(std::uint32_t old, CoreYield& core) noexcept {
  const CoreYield::Time deadline = std::chrono::steady_clock::now() + kSpin;
  for (int look = 1;; ++look) {
    const std::uint32_t value = value_.load();
    if (value != old) return value;
    pause_core();
    if (look % kLooksPerYield != 0) continue;
    const CoreYield::Time now = std::chrono::steady_clock::now();
    if (now > deadline) break;
    if (!core.is_slow(now)) core.yield(now);
  }
  sleepers_.fetch_add(1);
  std::uint32_t value = value_.load();
  for (; value == old; value = value_.load()) futex(value_, FUTEX_WAIT_PRIVATE, old);
  sleepers_.fetch_sub(1);
  return value;
}

}  // namespace moesaic
