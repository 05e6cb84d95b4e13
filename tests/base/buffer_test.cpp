#include "base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace moesaic {
namespace {

TEST(ByteBuffer, is_aligned_and_zero) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{9} << 20}) {
    const ByteBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    EXPECT_TRUE(std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{0}; }));
    if (bytes > 0) buffer.data()[bytes - 1] = std::byte{1};
  }
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
