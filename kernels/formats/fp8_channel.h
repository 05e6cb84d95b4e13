#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/e4m3_body.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;

namespace fp8_channel_format {

// A packed fp8_channel panel holds 16 columns of the product:
//
//   e4m3 codes (kernels/formats/e4m3_body.h)
//   f32  scales[16]
//
// value = code, exact in bf16; the scale of a column multiplies results.

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return e4m3_body::bytes(depth);
}
[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return scales_offset(depth) + kPanelColumns * 4;
}

/// scale = amax / 448, code = nearest(value / scale), even at ties.
void quantize(const FloatRows& rows, QuantizedRows& out);
void pack_panel(const QuantizedRows& rows, std::byte* panel);
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out);

}  // namespace fp8_channel_format
}  // namespace moesaic
