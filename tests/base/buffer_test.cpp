#include "base/buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(ByteBuffer, is_aligned_and_zero) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, 9 * kMiB}) {
    const ByteBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    const std::size_t alignment = bytes < kMiB * 4 ? 64 : kMiB * 2;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment, 0U);
    EXPECT_TRUE(std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{0}; }));
    if (bytes > 0) buffer.data()[bytes - 1] = std::byte{1};
  }
}

/// Addresses of this process that mean something.
std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(ByteBuffer, takes_no_more_addresses_than_it_has) {
  constexpr std::size_t kBuffers = 32;
  constexpr std::size_t kBytes = 6 * kMiB + kMiB / 4;
  const std::size_t before = mapped_bytes();
  {
    std::vector<ByteBuffer> buffers;
    for (std::size_t i = 0; i < kBuffers; ++i) buffers.emplace_back(kBytes);
    EXPECT_LT(mapped_bytes() - before, kBuffers * kBytes + 4 * kMiB)
        << "around huge pages, or at their end";
  }
  EXPECT_LT(mapped_bytes(), before + 4 * kMiB);
}

/// Pages of a buffer that are in memory.
std::ptrdiff_t resident_pages(const ByteBuffer& buffer) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((buffer.size() + page - 1) / page);
  EXPECT_EQ(::mincore(buffer.data(), buffer.size(), pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char flags) { return (flags & 1) != 0; });
}

TEST(ByteBuffer, takes_no_memory_for_slack) {
  constexpr std::size_t kUsed = 4 * kMiB + kMiB / 4;  // of its last huge page little
  const ByteBuffer buffer = ByteBuffer::with_slack(kUsed);
  EXPECT_GE(buffer.size(), kUsed + kMiB);
  EXPECT_EQ(resident_pages(buffer), 0);
  std::ranges::fill(buffer.span().first(kUsed), std::byte{1});
  EXPECT_EQ(resident_pages(buffer), static_cast<std::ptrdiff_t>(kUsed) / ::sysconf(_SC_PAGESIZE));
}

TEST(ByteBuffer, refuses_what_the_machine_lacks) {
  EXPECT_THROW(ByteBuffer(std::size_t{1} << 60), Error);
}

TEST(Buffer, reserve_grows_only) {
  Buffer<float> buffer(4);
  buffer.span()[3] = 7;
  buffer.reserve(2);
  EXPECT_EQ(buffer.span()[3], 7);
  buffer.reserve(100);
  EXPECT_GE(buffer.size(), 100);
}

TEST(Buffer, resize_makes_it_exactly_this_size) {
  Buffer<float> buffer(4);
  buffer.span()[3] = 7;
  buffer.resize(4);
  EXPECT_EQ(buffer.span()[3], 7);
  buffer.resize(5);
  EXPECT_EQ(buffer.size(), 5);
  EXPECT_EQ(buffer.span()[3], 0);
  buffer.resize(2);
  EXPECT_EQ(buffer.size(), 2);
}

TEST(MatrixView, rows_and_ranges) {
  Buffer<int> buffer(12);
  for (int i = 0; i < 12; ++i) buffer.span()[static_cast<std::size_t>(i)] = i;
  const MatrixView<int> matrix = buffer.matrix(3, 4);
  EXPECT_EQ(matrix(2, 1), 9);
  EXPECT_EQ(matrix.row(1)[0], 4);
  const MatrixView<const int> part = matrix.row_range(1, 2);
  EXPECT_EQ(part.rows(), 2);
  EXPECT_EQ(part(0, 3), 7);
}

}  // namespace
}  // namespace moesaic
