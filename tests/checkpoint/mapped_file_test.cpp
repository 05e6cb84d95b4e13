#include "src/checkpoint/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/memory.h"
#include "src/checkpoint/read_faults.h"
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

TEST(MappedFile, a_release_takes_the_pages_that_the_system_has_mapped_around) {
  const TemporaryDirectory directory;
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  test::write_text(directory.path_of("a"), std::string(kBytes, 'x'));  // in the page cache
  const MappedFile file(directory.path_of("a"));
  const std::int64_t before = resident_bytes().file;
  constexpr std::size_t kStep = std::size_t{64} << 10;
  for (std::size_t at = 0; at < kBytes; at += kStep) {
    const std::span<const std::byte> one = file.bytes().subspan(at + kStep / 2, 1);
    EXPECT_EQ(one[0], std::byte{'x'});
    release(one);
  }
  EXPECT_LT(resident_bytes().file - before, std::int64_t{kBytes} / 2);
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

TEST(MappedFile, bytes_that_cannot_be_read_any_more_are_zeros_and_an_error) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a");
  const std::string other_path = directory.path_of("b");
  test::write_text(path, std::string(100'000, 'x'));
  test::write_text(other_path, std::string(100'000, 'y'));
  const ReadFaultHandler handler;
  const MappedFile other(other_path);
  MappedFile file(path);
  const MappedFile moved(std::move(file));
  EXPECT_NO_THROW(moved.require_read());
  std::filesystem::resize_file(path, 8192);
  EXPECT_EQ(moved.bytes()[99'999], std::byte{0});
  EXPECT_EQ(moved.bytes()[8191], std::byte{'x'});
  EXPECT_EQ(moved.bytes()[8192], std::byte{0});
  const std::string cut =
      path + ": cut short by another program while it was read: 8192 of 100000 bytes are left";
  EXPECT_EQ(error_message([&] { moved.require_read(); }), cut);
  const auto parse = [&] { reading(moved, [] { fail(ErrorKind::file, "zeros are no header"); }); };
  EXPECT_EQ(error_message(parse), cut) << "and not what came of it";
  EXPECT_EQ(std::ranges::count(other.bytes(), std::byte{'y'}), 100'000);
  EXPECT_NO_THROW(other.require_read());
  std::filesystem::resize_file(path, 100'000);
  EXPECT_NE(error_message([&] {
              moved.require_read();
            }).find(path + ": the page at byte 98304 could not be"),
            std::string::npos)
      << error_message([&] { moved.require_read(); });
}

TEST(MappedFile, a_mapping_where_another_was_starts_unhurt) {
  const TemporaryDirectory directory;
  const std::string path = directory.path_of("a");
  const ReadFaultHandler handler;
  for (int round = 0; round < 3; ++round) {
    test::write_text(path, std::string(10'000, 'x'));
    const MappedFile file(path);
    EXPECT_NO_THROW(file.require_read());
    EXPECT_EQ(file.bytes()[9'999], std::byte{'x'});
    std::filesystem::resize_file(path, 0);
    EXPECT_EQ(file.bytes()[9'999], std::byte{0});
    EXPECT_THROW(file.require_read(), Error);
  }
}

/// A page of a mapping that nobody watches, which cannot be read.
const volatile char* unreadable_page(const std::string& path) {
  test::write_text(path, "x");
  std::FILE* file = std::fopen(path.c_str(), "r");
  void* data = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, ::fileno(file), 0);
  std::fclose(file);
  return static_cast<const volatile char*>(data) + 4096;
}

/// By the signal, or by a sanitizer that reports it and exits with 1. A fault that is taken for one
/// of a watched file ends with 0.
bool ended_by_bus_error(int status) {
  return testing::KilledBySignal(SIGBUS)(status) || testing::ExitedWithCode(1)(status);
}

TEST(ReadFaultHandlerDeathTest, other_bus_errors_end_the_process_as_ever) {
  const TemporaryDirectory directory;
  const MappedFile file(std::string(MOESAIC_TEST_DATA) + "/demo-model/config.json");
  EXPECT_EXIT(
      {
        const ReadFaultHandler handler;
        std::_Exit(*unreadable_page(directory.path_of("a")));
      },
      ended_by_bus_error, "");
  EXPECT_EXIT(
      {
        const ReadFaultHandler handler;
        (void)::kill(::getpid(), SIGBUS);
        std::_Exit(0);
      },
      ended_by_bus_error, "");
}

}  // namespace
}  // namespace moesaic
