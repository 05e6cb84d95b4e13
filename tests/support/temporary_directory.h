#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace moesaic::test {

/// A new empty directory, removed with all that is in it at the end of its scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string path_of(const std::string& file) const {
    return (path_ / file).string();
  }

 private:
  std::filesystem::path path_;
};

/// The whole file, byte for byte. Throws std::runtime_error if it cannot be read or written.
[[nodiscard]] std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

/// Entries of a directory.
[[nodiscard]] std::int64_t num_files(const std::string& directory);

}  // namespace moesaic::test
