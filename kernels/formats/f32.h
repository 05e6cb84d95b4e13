#pragma once

#include <cstdint>
#include <span>

#include "kernels/format.h"

namespace moesaic::f32_format {

// A packed f32 panel holds 16 columns of the product: [depth][16] float, depth = k rounded up to
// 32, missing columns and k are zero. Products are summed by one chain of fused multiply-adds in
// ascending k.

[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return round_up(depth, kStepDepth) * kPanelColumns * 4;
}

/// Packs up to 16 rows of a weight matrix, row r at rows[r] with `depth` elements, into one panel.
void pack_panel(std::span<const float* const> rows, std::int64_t depth, float* panel);

/// Inverse of pack_panel for one column: `depth` elements.
void unpack_column(const float* panel, std::int64_t column, std::int64_t depth, float* out);

}  // namespace moesaic::f32_format
