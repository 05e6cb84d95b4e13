#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moesaic {

/// A mapped part of a file, whose reads a ReadFaultHandler looks after.
class WatchedRange {
 public:
  /// Where in the range the page begins that could not be read first, in bytes; -1 if there is
  /// none.
  [[nodiscard]] std::int64_t failed_at() const noexcept { return failed_at_.load(); }

 private:
  friend class WatchedRanges;
  std::atomic<std::uintptr_t> begin_ = 0;  // of a page
  std::atomic<std::size_t> size_ = 0;      // 0: free
  std::atomic<std::int64_t> failed_at_ = -1;
  WatchedRange* next_ = nullptr;
};

/// Watches `mapped`, which begins with a page, until unwatch().
[[nodiscard]] WatchedRange& watch(std::span<const std::byte> mapped);
void unwatch(WatchedRange& range) noexcept;
/// All that is watched together with these bytes; nothing, if they are not.
[[nodiscard]] std::span<const std::byte> watched_around(std::span<const std::byte> bytes) noexcept;

/// While one lives, a read of a watched range that the system cannot do (another program has cut
/// the file short, its disk or server fails) does not end the process by SIGBUS: from that page on
/// the range reads as zeros, and the range remembers it. Whoever reads asks for that before using
/// what was read (MappedFile::require_read). All other SIGBUS go on to what was there before.
///
/// A signal's action belongs to the process: the program makes one, a library that it links does
/// not.
class ReadFaultHandler {
 public:
  ReadFaultHandler() noexcept;
  ~ReadFaultHandler();
  ReadFaultHandler(const ReadFaultHandler&) = delete;
  ReadFaultHandler& operator=(const ReadFaultHandler&) = delete;
};

}  // namespace moesaic
