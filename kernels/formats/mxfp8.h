#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/e4m3_body.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;

namespace mxfp8_format {

// A packed mxfp8 panel holds 16 columns of the product:
//
//   e4m3 codes (kernels/formats/e4m3_body.h), as kernels/formats/normalize_codes.h has them
//   e8m0 scales[steps of 32 k][16 columns], rounded up to 64 bytes
//
// value = code * scale, exact in bf16.

inline constexpr std::int64_t kGroup = 32;

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return e4m3_body::bytes(depth);
}
[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return scales_offset(depth) + round_up(step_count(Format::mxfp8, depth) * kPanelColumns, 64);
}

/// scale = the smallest power of two not below amax / 448 (ModelOpt), code = nearest(value /
/// scale), even at ties.
void quantize(const FloatRows& rows, QuantizedRows& out);
void pack_panel(const QuantizedRows& rows, std::byte* panel);
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out);

}  // namespace mxfp8_format
}  // namespace moesaic
