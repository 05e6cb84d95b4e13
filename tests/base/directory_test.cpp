#include "base/directory.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

TEST(Directory, EntriesAreAllThatIsInIt) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path_of("folder"));
  test::write_text(directory.path_of("file"), "");
  test::write_text(directory.path_of("folder/inner"), "");
  std::error_code error = std::make_error_code(std::errc::io_error);
  std::set<std::string> names;
  for (const auto& entry : entries_of(directory.path(), error)) {
    EXPECT_TRUE(names.insert(entry.path().filename().string()).second);
  }
  EXPECT_FALSE(error);
  EXPECT_EQ(names, (std::set<std::string>{"file", "folder"}));
}

TEST(Directory, ErrorsAreTold) {
  const test::TemporaryDirectory directory;
  std::error_code error;
  EXPECT_TRUE(entries_of(directory.path_of("none"), error).empty());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  test::write_text(directory.path_of("file"), "");
  EXPECT_TRUE(entries_of(directory.path_of("file"), error).empty());
  EXPECT_EQ(error, std::errc::not_a_directory);
}

}  // namespace
}  // namespace moesaic
