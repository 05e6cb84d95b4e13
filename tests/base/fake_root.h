#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// A directory in the place of "/", with the files of a machine as a test wants it.
class FakeRoot {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = directory_.path_of(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] std::string path() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace moesaic::test
