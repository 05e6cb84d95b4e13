#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/e4m3_body.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;
class MatrixScales;

namespace fp8_block_format {

// A packed fp8_block panel holds 16 columns of the product:
//
//   e4m3 codes (kernels/formats/e4m3_body.h), as kernels/formats/normalize_codes.h has them
//   f32  scales[groups of k]    one for all 16 columns, not negative; rounded up to 64 bytes
//
// value = bf16(code * scale).

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return e4m3_body::bytes(depth);
}
[[nodiscard]] constexpr std::int64_t panel_bytes(const Layout& layout,
                                                 std::int64_t depth) noexcept {
  const std::int64_t groups = round_up(depth, layout.group) / layout.group;
  return scales_offset(depth) + round_up(groups * 4, 64);
}

/// scale = amax of the block / 448, code = nearest(value / scale), even at ties.
void quantize(const Layout& layout, const FloatRows& rows, const MatrixScales& scales,
              QuantizedRows& out);
/// Throws Error{internal} for rows that do not share their scales.
void pack_panel(const Layout& layout, const QuantizedRows& rows, std::byte* panel);
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out);

}  // namespace fp8_block_format
}  // namespace moesaic
