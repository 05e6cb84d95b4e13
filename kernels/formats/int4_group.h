#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/format.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;
struct QuantizedRows;

namespace int4_group_format {

// A packed int4_group panel holds 16 columns of the product, its codes 0 to 15:
//
//   uint32 codes[steps of 32 k][2 halves h][2 blocks b of 8 columns][8 columns][2 parities]
//   scales[groups of k][16 columns]
//
// Bits 4 r to 4 r + 3 of a word are the code of k = 32 step + 16 h + 2 r + parity, so that the low
// bits of 16 words are half a line of a bf16 panel. A scale is
//
//   compact  uint16   bf16; the zero point is 8
//   wide     uint32   a float's upper 24 bits (16 significant ones), and a zero point of 8 bits
//
// value = bf16((code - zero point) * scale), which is (code - 8) * scale + (8 - zero point) *
// scale: scales have 16 significant bits, and so all of it is exact before it is rounded. What is
// missing has the code that is its zero point; scales of missing columns are zero.

inline constexpr std::int64_t kStepBytes = 256;
inline constexpr std::uint8_t kCompactZero = 8;

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return step_count(Format::int4_group, depth) * kStepBytes;
}
/// Bytes of the scales of one group: 16 columns.
[[nodiscard]] constexpr std::int64_t scale_bytes(const Layout& layout) noexcept {
  return kPanelColumns * (layout.wide_scales ? 4 : 2);
}
[[nodiscard]] constexpr std::int64_t panel_bytes(const Layout& layout,
                                                 std::int64_t depth) noexcept {
  const std::int64_t groups = round_up(depth, layout.group) / layout.group;
  return round_up(scales_offset(depth) + groups * scale_bytes(layout), 64);
}

/// What the codes of one column in one group count by: (code - zero) * scale.
struct GroupScale {
  float scale = 0;
  std::uint8_t zero = kCompactZero;
};
/// From the scales of a group.
[[nodiscard]] GroupScale load_scale(const Layout& layout, const std::byte* scales,
                                    std::int64_t column);
/// The code of k, which counts from the step that `codes` belong to.
[[nodiscard]] std::int32_t load_code(const std::byte* codes, std::int64_t column, std::int64_t k);

/// As compressed-tensors: scale = amax / 7.5, rounded to what the layout holds, code =
/// nearest(value / scale) from -8 to 7, even at ties; plus 8.
void quantize(const Layout& layout, const FloatRows& rows, QuantizedRows& out);
/// Throws Error{internal} for scales and zero points that need wide scales, in a compact layout.
void pack_panel(const Layout& layout, const QuantizedRows& rows, std::byte* panel);
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out);

}  // namespace int4_group_format
}  // namespace moesaic
