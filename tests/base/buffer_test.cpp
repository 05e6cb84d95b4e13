#include "base/buffer.h"

#include <gtest/gtest.h>
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
  const std::size_t before = mapped_bytes();
  {
    std::vector<ByteBuffer> buffers;
    for (std::size_t i = 0; i < kBuffers; ++i) buffers.emplace_back(6 * kMiB);
    EXPECT_LT(mapped_bytes() - before, kBuffers * 6 * kMiB + 4 * kMiB) << "around huge pages";
  }
  EXPECT_LT(mapped_bytes(), before + 4 * kMiB);
}

/// Bytes that this process has in memory.
std::size_t used_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(ByteBuffer, takes_memory_for_what_is_used) {
  constexpr std::size_t kBuffers = 16;
  constexpr std::size_t kUsed = 4 * kMiB + kMiB / 4;  // of its last huge page little
  const std::size_t before = used_bytes();
  std::vector<ByteBuffer> buffers;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    buffers.push_back(i % 2 == 0 ? ByteBuffer(kUsed) : ByteBuffer::with_slack(kUsed));
    std::ranges::fill(buffers.back().span().first(kUsed), std::byte{1});
  }
  EXPECT_LT(used_bytes() - before, kBuffers * kUsed + 4 * kMiB);
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
