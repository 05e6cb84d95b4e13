#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace moesaic {

/// A file mapped read-only into memory. Pages are read when they are first touched; a file that is
/// cut short by someone else while it is mapped makes such a touch fatal (SIGBUS).
class MappedFile {
 public:
  /// Throws Error{file} naming `path` if it is missing, unreadable or no regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

/// Asks the system to start reading mapped bytes now. A hint: never fails.
void prefetch(std::span<const std::byte> mapped) noexcept;

/// Takes mapped bytes that have been used out of this process's resident memory; touching them
/// again reads them again. A hint: never fails.
void release(std::span<const std::byte> mapped) noexcept;

}  // namespace moesaic
