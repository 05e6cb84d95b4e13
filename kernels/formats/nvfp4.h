#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/e2m1_body.h"
#include "kernels/formats/elements.h"

namespace moesaic {

struct FloatRows;
struct PackedMatrix;
class MatrixScales;

namespace nvfp4_format {

// A packed nvfp4 panel holds 16 columns of the product:
//
//   e2m1 codes (kernels/formats/e2m1_body.h)
//   e4m3 scales[groups of 16 k, two a step][16 columns], not negative; rounded up to 64 bytes
//
// value = code * scale, exact in bf16; PackedMatrix::scale multiplies results. Groups whose scale
// is zero have zero codes, missing scales are 1.

inline constexpr std::int64_t kGroup = 16;

[[nodiscard]] constexpr std::int64_t scales_offset(std::int64_t depth) noexcept {
  return e2m1_body::bytes(depth);
}
[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return scales_offset(depth) + round_up(step_count(Format::nvfp4, depth) * 2 * kPanelColumns, 64);
}

/// The matrix's scale: amax / 2688, so that its largest magnitude has the largest code and scale.
inline constexpr float kLargestValue = kLargestE2m1 * kLargestE4m3;

/// As ModelOpt: scale = nearest e4m3 of amax / (6 * matrix scale) from 2^-9 to 448, 1 for zeros,
/// code = nearest(value / (scale * matrix scale)), even at ties.
void quantize(const FloatRows& rows, const MatrixScales& scales, QuantizedRows& out);
void pack_panel(const QuantizedRows& rows, std::byte* panel);
void decode_step(const PackedMatrix& matrix, std::int64_t panel, std::int64_t step, BFloat16* out);

}  // namespace nvfp4_format
}  // namespace moesaic
