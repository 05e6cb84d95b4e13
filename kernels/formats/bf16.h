#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/format.h"

namespace moesaic::bf16_format {

// A packed bf16 panel holds 16 columns of the product (16 rows of the [n, k] weight matrix):
//
//   [depth / 2][16][2] bf16, depth = k rounded up to 32, missing columns and k are zero
//
// so that one 64-byte line holds a pair of k (even first) for 16 columns. 16 lines are the 16 x
// 64-byte B tile of AMX; as 32-bit words, even k = bits << 16 and odd k = bits & 0xffff0000 are
// floats.

/// Bytes of one panel of a matrix with `depth` columns (k).
[[nodiscard]] constexpr std::int64_t panel_bytes(std::int64_t depth) noexcept {
  return round_up(depth, kStepDepth) * kPanelColumns * 2;
}

/// Element index of (column c of 16, k) in a panel.
[[nodiscard]] constexpr std::int64_t element_index(std::int64_t column, std::int64_t k) noexcept {
  return (k / 2) * (kPanelColumns * 2) + column * 2 + k % 2;
}

/// Packs up to 16 rows of a weight matrix, row r at rows[r] with `depth` elements, into one panel.
void pack_panel(std::span<const BFloat16* const> rows, std::int64_t depth, BFloat16* panel);

/// Inverse of pack_panel for one column: `depth` elements.
void unpack_column(const BFloat16* panel, std::int64_t column, std::int64_t depth, BFloat16* out);

}  // namespace moesaic::bf16_format
