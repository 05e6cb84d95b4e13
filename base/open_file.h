#pragma once

#include <cstdint>
#include <string>

namespace moesaic {

/// A regular file that is open to be read, closed at the end of its scope.
class OpenFile {
 public:
  /// Throws Error{file} naming `path` if it is missing, unreadable or no regular file: a pipe would
  /// never end.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// When it was opened.
  [[nodiscard]] std::int64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  int descriptor_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace moesaic
