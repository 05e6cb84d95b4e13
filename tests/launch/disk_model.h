#pragma once

#include <set>
#include <string>
#include <vector>

namespace moesaic::test {

/// What of a program's files a power cut may still take, from the log of watched_disk.cpp: a disk
/// keeps the bytes of a file that was synced, and the names of a directory that was.
class DiskModel {
 public:
  /// The log of a program that is over.
  explicit DiskModel(const std::string& log);

  /// What it has done, "rename FROM TO", as sentences of the log.
  [[nodiscard]] const std::vector<std::string>& things() const noexcept { return things_; }
  /// Names that were given to what a power cut could still have taken then, and what was removed
  /// while its successor's name could still be lost.
  [[nodiscard]] const std::vector<std::string>& mistakes() const noexcept { return mistakes_; }
  /// What could be lost at the end: files, and directories with their newest names.
  [[nodiscard]] std::set<std::string> losable() const;

 private:
  void take(const std::vector<std::string>& words);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& path);
  void expect_kept(const std::string& path, const std::string& thing);

  std::vector<std::string> things_;
  std::vector<std::string> mistakes_;
  std::set<std::string> files_;    // whose bytes can be lost
  std::set<std::string> names_;    // directories with new names that can be
  std::set<std::string> renamed_;  // those of them in which something has another name now
};

}  // namespace moesaic::test
