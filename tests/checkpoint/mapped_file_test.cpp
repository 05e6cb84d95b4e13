#include "src/checkpoint/mapped_file.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::TemporaryDirectory;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, shows_the_bytes_also_after_a_move_and_a_release) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a");
  const std::string text(100'000, 'x');
  test::write_text(path, text);
  MappedFile first(path);
  MappedFile second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move)
  prefetch(second.bytes().subspan(5000, 3));
  EXPECT_EQ(text_of(second), text);
  release(second.bytes().subspan(1, 90'000));
  EXPECT_EQ(text_of(second), text);
}

TEST(MappedFile, an_empty_file_has_no_bytes) {
  const TemporaryDirectory directory;
  test::write_text(directory.path_of("empty"), "");
  EXPECT_TRUE(MappedFile(directory.path_of("empty")).bytes().empty());
}

TEST(MappedFile, names_what_cannot_be_mapped) {
  const TemporaryDirectory directory;
  const auto message = [](const std::string& path) {
    return error_message([&] { MappedFile file(path); });
  };
  EXPECT_EQ(message(directory.path_of("gone")), directory.path_of("gone") + ": no such file");
  EXPECT_EQ(message(directory.path()), directory.path() + ": not a regular file");
}

}  // namespace
}  // namespace moesaic
