#include "base/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Mode = OutputFile::Mode;

std::span<const std::byte> to_write(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(OutputFile, HasItsSizeAtOnceAndBytesWhereTheyWereWritten) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  OutputFile first(path, Mode::create);
  first.reserve(10);
  EXPECT_EQ(std::filesystem::file_size(path), 10U);
  const OutputFile second(path, Mode::existing);
  second.write_at(7, to_write("xyz"));
  first.write_at(0, to_write("abc"));
  first.sync();
  EXPECT_EQ(test::read_text(path), std::string("abc\0\0\0\0xyz", 10));
}

TEST(OutputFile, RefusalsNameTheFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  const auto message = [&](const std::function<void()>& call) {
    return test::error_message(call, ErrorKind::resource);
  };
  EXPECT_NE(message([&] { OutputFile(path, Mode::existing); }).find(path), std::string::npos);
  EXPECT_EQ(message([&] { OutputFile(path + "/x", Mode::create, "shown"); }),
            "shown: cannot be written: No such file or directory");
  OutputFile file(path, Mode::create);
  EXPECT_NE(message([&] { file.reserve(std::int64_t{1} << 62); }).find("cannot reserve"),
            std::string::npos);
}

}  // namespace
}  // namespace moesaic
