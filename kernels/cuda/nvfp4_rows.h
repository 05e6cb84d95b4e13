#pragma once

#include <cstdint>

// Rows of activations in nvfp4 (kernels/nvfp4_activations.h) in a GPU's memory, and what the host
// gives to the kernels of kernels/cuda/rows that make them, which include this file too.
//
// A row is records of 256 k, zero beyond its end:
//
//   uint32 codes[32]   e2m1, eight a word
//   uint8 scales[16]   e4m3, one for 16 k
//
// A word of eight k has k = 0, 2, 4, 6, 1, 3, 5, 7 from its low bits on, the order of a packed
// panel (kernels/formats/e2m1_body.h). An element counts code * scale *
// the row's power of two, which stands apart: NaN for a row with a value that is not finite.

namespace moesaic::cuda {

inline constexpr int kRecordDepth = 256;
inline constexpr int kRecordCodeBytes = kRecordDepth / 2;
inline constexpr int kRecordBytes = kRecordCodeBytes + kRecordDepth / 16;

struct RoundArguments {
  const std::uint16_t* from;  // [grid.x, depth] bf16
  std::uint16_t* rounded;     // of round: [grid.x, depth] bf16, exact; may be `from`
  std::uint8_t* records;      // of quantize: [grid.x, row_records]
  float* row_scales;          // of quantize: [grid.x] powers of two
  const std::int32_t* count;  // null, or [1] how many rows there are, not more than grid.x
  std::int32_t depth;         // a multiple of 8
  std::int32_t row_records;
  float input_scale;  // not 0: in the place of a row's own, and left out of what it becomes
  std::int32_t unused;
};

}  // namespace moesaic::cuda
