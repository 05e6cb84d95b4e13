#include "launch/job/written_files.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace moesaic {
namespace {

TEST(IsWithin, TakesNamesOfWhatIsNotThere) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_TRUE(is_within("no-such-folder/file", here + "/no-such-folder"));
  EXPECT_TRUE(is_within(here + "/no-such-folder/file", "no-such-folder"));
  EXPECT_TRUE(is_within("no-such-folder", here));
  EXPECT_FALSE(is_within("no-such-folder-either", here + "/no-such-folder"));
  EXPECT_EQ(full_path("a/../no-such-file"), here + "/no-such-file");
}

}  // namespace
}  // namespace moesaic
