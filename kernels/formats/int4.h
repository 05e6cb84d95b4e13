#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;
struct QuantizedRows;

namespace int4_format {

// A packed int4 panel holds 16 columns of the product, its codes in two's complement:
//
//   codes[tiles of 64 k][8 pairs of tile lines][16 columns][4] bytes
//   f32   scales[16]     a 16th of the column's scale
//   int32 offsets[16]    128 * 16 times the sum of the column's codes
//
// Byte (tile t, pair j, column, i) has the code of k = 64 t + 8 j + i low and that of k + 4 high.
// Kernels multiply by 16 times the code, byte << 4 and byte & 0xf0, which needs no sign extension;
// scales and offsets are made for that. What is missing is zero.

inline constexpr std::int64_t kStepBytes = kTileBytes / 2;

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return step_count(Format::int4, depth) * kStepBytes;
}
[[nodiscard]] constexpr std::int64_t offsets_offset(std::int64_t depth) noexcept {
  return scales_offset(depth) + kPanelColumns * 4;
}
[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return offsets_offset(depth) + kPanelColumns * 4;
}

/// The codes of KTransformers' AMXINT4: value / (amax / 112) is rounded to an integer and that to a
/// multiple of 16, halves away from zero. Codes are -7 to 7, the scale is amax / 7.
void quantize(const FloatRows& rows, QuantizedRows& out);
void pack_panel(const QuantizedRows& rows, std::byte* panel);
/// 16 times the codes.
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step,
                 std::int8_t* out);

}  // namespace int4_format
}  // namespace moesaic
