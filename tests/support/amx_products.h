#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/support/amx_decoder.h"

namespace moesaic::test {

inline constexpr std::size_t kAmxTileRows = 16;
inline constexpr std::size_t kAmxRowWords = 16;

/// A word of a tile is two bf16, four bytes, or one f32 or int32 of a sum.
using AmxRow = std::array<std::uint32_t, kAmxRowWords>;
using AmxTile = std::array<AmxRow, kAmxTileRows>;

/// C += A B for tiles of these numbers of rows and words.
struct AmxProduct {
  AmxOperation operation;
  const AmxTile& a;  // [rows, depth]
  const AmxTile& b;  // [depth, columns]
  AmxTile& c;        // [rows, columns]
  std::size_t rows, depth, columns;
};

/// What the instruction does according to the pseudo-code of Intel's manual (volume 2, TDPBF16PS
/// and TDPBSSD/TDPBSUD/TDPBUSD/TDPBUUD), whatever MXCSR says. For bf16 and one element of C:
///   even = fma(A[2k], B[2k], even), ascending k, from 0; odd likewise from the odd elements;
///   C = C + (even + odd); rounded to nearest even, subnormal operands and results flushed.
void multiply(const AmxProduct& product);

}  // namespace moesaic::test
