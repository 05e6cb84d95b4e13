#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace moesaic {

class Checksum;
class WatchedRange;

/// A file mapped read-only into memory. Pages are read when they are first touched. A file that
/// someone else cuts short meanwhile, or whose disk fails, makes such a touch fatal (SIGBUS),
/// unless a ReadFaultHandler lives: then it reads as zeros, and require_read() throws.
class MappedFile {
 public:
  /// Throws Error{file} naming `path` if it is missing, unreadable or no regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// Throws Error{file} that names the file and the byte if a read of its bytes has failed, so that
  /// what was read is not what the file has.
  void require_read() const;
  /// As release() of all bytes.
  void release_pages() const noexcept;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
  WatchedRange* watched_ = nullptr;
};

/// Addresses of so many bytes that nobody may read, for what follows from sizes alone. Throws
/// Error{resource} when the system refuses.
[[nodiscard]] std::shared_ptr<const std::byte> reserve_unread(std::size_t bytes);

/// What `call()` returns, which reads bytes of `source`: a MappedFile, or what else has a
/// require_read(). Whatever goes wrong in it because a read failed, the error tells of that read.
template <typename Source, typename Call>
std::invoke_result_t<const Call&> reading(const Source& source, const Call& call) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<const Call&>>) {
      call();
      source.require_read();
    } else {
      auto result = call();
      source.require_read();
      return result;
    }
  } catch (const Error&) {
    source.require_read();
    throw;
  }
}

/// Asks the system to start reading mapped bytes now. A hint: never fails.
void prefetch(std::span<const std::byte> mapped) noexcept;

/// Takes bytes of a MappedFile that have been used, and those that the system has mapped around
/// them, out of this process's resident memory; touching them again maps them again. A hint: never
/// fails.
void release(std::span<const std::byte> mapped) noexcept;

/// Adds mapped bytes to a sum, some MiB at a time, which are released; `added` hears how many.
void add_to_checksum(Checksum& sum, std::span<const std::byte> mapped,
                     const std::function<void(std::int64_t bytes)>& added);

}  // namespace moesaic
