#include "kernels/formats/transpose_words.h"

#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>

namespace moesaic {

namespace {

constexpr std::size_t kRows = 16;
constexpr std::size_t kBlockBytes = 64;  // of each row; a block is 16 x 16 words
constexpr std::array<std::byte, kBlockBytes> kZeros{};

using Block = std::array<const std::byte*, kRows>;

std::uint64_t load(const std::byte* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Two words of two rows at a time. A row's whole cache line is used up before the next row's is
// touched: rows of a checkpoint are often a power of two apart and share an L1 set.
void transpose_block(const Block& rows, std::byte* out) {
  for (std::size_t r = 0; r < kRows; r += 2) {
    for (std::size_t offset = 0; offset < kBlockBytes; offset += 8) {
      const std::uint64_t upper = load(rows[r] + offset);
      const std::uint64_t lower = load(rows[r + 1] + offset);
      const std::uint64_t even = (upper & 0xffffffffU) | lower << 32;
      const std::uint64_t odd = upper >> 32 | (lower & ~0xffffffffULL);
      std::byte* line = out + offset / 4 * kBlockBytes + r * 4;
      std::memcpy(line, &even, sizeof even);
      std::memcpy(line + kBlockBytes, &odd, sizeof odd);
    }
  }
}

}  // namespace

void transpose_words(std::span<const std::byte* const> rows, std::size_t row_bytes,
                     std::size_t padded_bytes, std::byte* out) {
  assert(rows.size() <= kRows && row_bytes <= padded_bytes && padded_bytes % kBlockBytes == 0);
  Block block;
  block.fill(kZeros.data());
  std::size_t begin = 0;
  for (; begin + kBlockBytes <= row_bytes; begin += kBlockBytes) {
    for (std::size_t r = 0; r < rows.size(); ++r) block[r] = rows[r] + begin;
    transpose_block(block, out + begin * kRows);
  }
  if (begin == padded_bytes) return;
  std::array<std::byte, kRows * kBlockBytes> tail{};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    block[r] = &tail[r * kBlockBytes];
    if (begin < row_bytes) std::memcpy(&tail[r * kBlockBytes], rows[r] + begin, row_bytes - begin);
  }
  transpose_block(block, out + begin * kRows);
  begin += kBlockBytes;
  std::memset(out + begin * kRows, 0, (padded_bytes - begin) * kRows);
}

}  // namespace moesaic
