#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/checkpoint_files.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace {

int interrupted_calls = 0;  // of the next ones that reserve space

}  // namespace

extern "C" int fallocate(int file, int mode, off_t offset, off_t bytes) {
  if (interrupted_calls > 0) {
    --interrupted_calls;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, bytes));
}

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

TEST(OutputFile, ASignalDoesNotEndAReservation) {
  const test::TemporaryDirectory directory;
  OutputFile file(directory.path_of("file"), Mode::create);
  interrupted_calls = 3;
  file.reserve(10);
  EXPECT_EQ(interrupted_calls, 0) << "or the test shows nothing";
  EXPECT_EQ(std::filesystem::file_size(directory.path_of("file")), 10U);
}

TEST(OutputFile, IsLockedByOneAtATime) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  const OutputFile second(path, Mode::create);
  {
    const OutputFile first(path, Mode::existing);
    EXPECT_TRUE(first.lock());
    EXPECT_TRUE(first.lock()) << "who has it keeps it";
    EXPECT_FALSE(second.lock());
  }
  EXPECT_TRUE(second.lock());
}

TEST(OutputFile, KnowsWhetherItsNameIsThatOfAnother) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  const std::string moved = directory.path_of("moved");
  const OutputFile file(path, Mode::create);
  EXPECT_TRUE(file.is_at(path));
  std::filesystem::rename(path, moved);
  EXPECT_TRUE(file.is_at(moved));
  EXPECT_FALSE(file.is_at(path)) << "there is none";
  test::write_text(path, "another");
  EXPECT_FALSE(file.is_at(path));
}

TEST(OutputFile, WhatIsBeyondItsNewEndIsDropped) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path_of("file");
  const OutputFile file(path, Mode::create);
  file.write_at(0, to_write("abcdef"));
  file.resize(3);
  file.write_at(3, to_write("x"));
  EXPECT_EQ(test::read_text(path), "abcx");
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

/// Without a reader, to open it would wait; with one, it has no places to write at.
TEST(OutputFile, APipeIsRefusedAndNotWaitedFor) {
  const test::TemporaryDirectory directory;
  const std::string pipe = directory.path_of("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const Mode mode : {Mode::create, Mode::existing, Mode::kept}) {
    EXPECT_EQ(test::error_message([&] { OutputFile(pipe, mode); }, ErrorKind::resource),
              pipe + ": cannot be written: not a regular file");
  }
  EXPECT_NO_THROW(OutputFile("/dev/null", Mode::create));
  EXPECT_THROW(OutputFile("/dev/null", Mode::kept), Error) << "what it has cannot be read again";
}

TEST(OutputFile, WhetherAFileCanBeReplacedIsKnownBefore) {
  const test::TemporaryDirectory directory;
  const auto message = [&](const std::string& path) {
    return test::error_message([&] { require_replaceable(path); }, ErrorKind::resource);
  };
  const std::string path = directory.path_of("file");
  require_replaceable(path);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "nothing is left behind";
  replace_file(path, "text");
  require_replaceable(path);
  EXPECT_EQ(test::read_text(path), "text");
  EXPECT_EQ(message(path + "/x"), path + "/x: cannot be written: Not a directory");
  const std::string folder = directory.path();
  EXPECT_EQ(message(folder), folder + ": cannot be written: it is a directory");
  const std::string pipe = directory.path_of("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message(pipe), pipe + ": cannot be written: not a regular file");
  EXPECT_THROW(replace_file(pipe, "text"), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe)) << "a pipe or a device is not replaced by a file";
}

TEST(ReplacingFile, NamesOfPartsTellWhatTheyAreOf) {
  EXPECT_EQ(name_of_part("a.json.part-12"), "a.json");
  EXPECT_EQ(name_of_part("a.part-1.part-2"), "a.part-1");
  for (const char* const name : {"a.json", "a.part", "a.part-", "a.part-aa", "a.part-1x",
                                 "a.partial-1", "a.part-1.gz", ""}) {
    EXPECT_EQ(name_of_part(name), "") << name;
  }
}

TEST(OutputFile, WhetherThereIsRoomIsKnownBefore) {
  const test::TemporaryDirectory directory;
  const auto message = [&](const std::vector<std::int64_t>& bytes) {
    return test::error_message([&] { require_room(directory.path(), bytes, "two files"); },
                               ErrorKind::resource);
  };
  require_room(directory.path(), std::vector<std::int64_t>{3000, 0, 5000}, "three files");
  const std::string refusal = message({1000, std::int64_t{1} << 62});
  EXPECT_TRUE(refusal.starts_with(directory.path() + " (two files): cannot reserve 46116860184"))
      << refusal;
  {
    const test::FileSizeLimit limit(4000);
    require_room(directory.path(), std::vector<std::int64_t>{3000, 3000}, "two files");
    EXPECT_NE(message({3000, 5000}).find("File too large"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "nothing is left behind";
}

}  // namespace
}  // namespace moesaic
