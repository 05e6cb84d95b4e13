#include "base/small_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::TemporaryDirectory;

TEST(SmallFile, is_read_whole) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a");
  const std::string text = std::string(100'000, 'x') + '\0' + "end";
  test::write_text(path, text);
  EXPECT_EQ(read_file(path, 200'000), text);
  EXPECT_TRUE(file_exists(path));
  test::write_text(path, "");
  EXPECT_EQ(read_file(path, 10), "");
}

TEST(SmallFile, is_refused_by_its_name_and_what_is_wrong) {
  const TemporaryDirectory directory;
  const auto message = [](const std::string& path) {
    return error_message([&] { (void)read_file(path, 1000); });
  };
  const std::string path = directory.path_of("a");
  EXPECT_EQ(message(path), path + ": no such file");
  test::write_text(path, std::string(1001, 'x'));
  EXPECT_EQ(message(path), path + ": 1001 bytes, at most 1000 are accepted");
  EXPECT_EQ(message(directory.path()), directory.path() + ": not a regular file");
  EXPECT_EQ(message("/dev/zero"), "/dev/zero: not a regular file");
  const std::string pipe = directory.path_of("pipe");  // nobody writes
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message(pipe), pipe + ": not a regular file");
}

TEST(SmallFile, what_the_system_does_not_tell_is_an_error) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(file_exists(directory.path_of("gone")));
  EXPECT_FALSE(file_exists(directory.path_of("gone/further")));
  const std::string path = directory.path_of("loop");
  std::filesystem::create_symlink("loop", path);
  EXPECT_EQ(error_message([&] { (void)file_exists(path); }),
            path + ": Too many levels of symbolic links");
}

TEST(SmallFile, broken_downloads_are_known_by_their_first_bytes) {
  const auto is = [](std::string_view beginning, std::string_view what) {
    return mistaken_for(beginning).find(what) != std::string_view::npos;
  };
  EXPECT_TRUE(is("version https://git-lfs.github.com/spec/v1\noid sha256:", "Git LFS pointer"));
  EXPECT_TRUE(is("<!DOCTYPE html>\n", "web page"));
  EXPECT_TRUE(is("\n  <HTML lang=en>", "web page"));
  EXPECT_TRUE(is("<?xml version=\"1.0\"?><Error>", "web page"));
  EXPECT_TRUE(is(std::string_view("GGUF\x03\0\0\0", 8), "GGUF"));
  EXPECT_TRUE(is(std::string_view("PK\x03\x04\0\0", 6), "zip archive"));
  EXPECT_TRUE(is("\x80\x02}q", "pickled"));
  EXPECT_TRUE(is("\x1f\x8b\x08", "gzip"));
  EXPECT_EQ(mistaken_for(""), "");
  EXPECT_EQ(mistaken_for("{\"a\": 1}"), "");
  EXPECT_EQ(mistaken_for("version 1"), "");
  EXPECT_EQ(mistaken_for("gguf"), "") << "binary kinds have one spelling";
}

TEST(SmallFile, json_that_is_no_json_tells_what_it_is) {
  const auto message = [](std::string_view text) {
    return error_message([&] { (void)Json::parse(text, "config.json"); });
  };
  EXPECT_NE(message("version https://git-lfs.github.com/spec/v1\n").find("Git LFS"),
            std::string::npos);
  EXPECT_NE(message("{\"a\": }").find("config.json: not valid JSON"), std::string::npos);
}

}  // namespace
}  // namespace moesaic
