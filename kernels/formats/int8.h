#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;
struct QuantizedRows;

namespace int8_format {

// A packed int8 panel holds 16 columns of the product:
//
//   int8  codes[depth / 4][16][4]   depth = k rounded up to 64; 16 lines are an AMX tile
//   f32   scales[16]
//   int32 offsets[16]               128 times the sum of the column's codes
//
// value = code * scale of the column. A kernel that has to add 128 to its int8 activations takes
// `offsets` off its sums. What is missing is zero.

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return round_up(depth, kIntStepDepth) * kPanelColumns;
}
[[nodiscard]] constexpr std::int64_t offsets_offset(std::int64_t depth) noexcept {
  return scales_offset(depth) + kPanelColumns * 4;
}
[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return offsets_offset(depth) + kPanelColumns * 4;
}

/// scale = amax / 127, code = nearest(value / scale), even at ties.
void quantize(const FloatRows& rows, QuantizedRows& out);
void pack_panel(const QuantizedRows& rows, std::byte* panel);
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step,
                 std::int8_t* out);

}  // namespace int8_format
}  // namespace moesaic
