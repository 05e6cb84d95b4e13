#include "src/checkpoint/read_faults.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace moesaic {

/// All ranges, in a list that only grows, so that a signal handler can walk along it at any time.
class WatchedRanges {
 public:
  WatchedRange& add(std::span<const std::byte> mapped) {
    const std::lock_guard lock(mutex_);
    WatchedRange* range = first_.load();
    while (range != nullptr && range->size_.load() != 0) range = range->next_;
    if (range == nullptr) {
      range = new WatchedRange;
      range->next_ = first_.load();
      first_.store(range);
    }
    range->failed_at_.store(-1);
    range->begin_.store(reinterpret_cast<std::uintptr_t>(mapped.data()));
    range->size_.store(mapped.size());
    return *range;
  }

  [[nodiscard]] std::span<const std::byte> find(std::uintptr_t address) const noexcept {
    for (const WatchedRange* range = first_.load(); range != nullptr; range = range->next_) {
      const std::size_t size = range->size_.load();
      const std::uintptr_t begin = range->begin_.load();
      if (address < begin || address - begin >= size) continue;
      return {reinterpret_cast<const std::byte*>(begin), size};
    }
    return {};
  }

  static void remove(WatchedRange& range) noexcept { range.size_.store(0); }

  /// Lets the range that has this address read as zeros from its page on; false if none has it. For
  /// signal handlers: atomics and one system call.
  bool replace(std::uintptr_t address) noexcept {
    for (WatchedRange* range = first_.load(); range != nullptr; range = range->next_) {
      const std::size_t size = range->size_.load();
      const std::uintptr_t begin = range->begin_.load();
      if (address < begin || address - begin >= round_to_page(size)) continue;
      const std::uintptr_t page = address & ~(page_bytes_ - 1);
      constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
      if (::mmap(reinterpret_cast<void*>(page), size - (page - begin), PROT_READ, kFlags, -1, 0) ==
          MAP_FAILED) {
        return false;
      }
      std::int64_t none = -1;
      range->failed_at_.compare_exchange_strong(none, static_cast<std::int64_t>(page - begin));
      return true;
    }
    return false;
  }

 private:
  [[nodiscard]] std::size_t round_to_page(std::size_t size) const noexcept {
    return (size + page_bytes_ - 1) & ~(page_bytes_ - 1);
  }

  std::mutex mutex_;
  std::atomic<WatchedRange*> first_ = nullptr;
  std::uintptr_t page_bytes_ = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
};

namespace {

/// What a handler of a signal knows has to be global.
WatchedRanges& ranges() {
  static WatchedRanges all;
  return all;
}
WatchedRanges* handler_ranges = nullptr;
struct sigaction former_action = {};

void on_bus_error(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const bool replaced = info->si_code == BUS_ADRERR &&
                        handler_ranges->replace(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (!replaced) {
    ::sigaction(signal, &former_action, nullptr);   // the access comes again, and ends there
    if (info->si_code <= 0) (void)::raise(signal);  // unless it was none, but another process
  }
  errno = saved;
}

}  // namespace

WatchedRange& watch(std::span<const std::byte> mapped) {
  return ranges().add(mapped);
}

void unwatch(WatchedRange& range) noexcept {
  WatchedRanges::remove(range);
}

std::span<const std::byte> watched_around(std::span<const std::byte> bytes) noexcept {
  return ranges().find(reinterpret_cast<std::uintptr_t>(bytes.data()));
}

ReadFaultHandler::ReadFaultHandler() noexcept {
  handler_ranges = &ranges();
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &former_action);
}

ReadFaultHandler::~ReadFaultHandler() {
  ::sigaction(SIGBUS, &former_action, nullptr);
}

}  // namespace moesaic
