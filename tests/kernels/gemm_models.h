#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/dtype.h"

namespace moesaic {

// How one result of a product is defined, written for reading: no vectors, no packing, and every
// flush spelled out, so that the models do not depend on the settings of the CPU. Both operands
// have the same number of elements; the models pad them to whole steps with zeros.

/// The tile order: what TDPBF16PS does.
[[nodiscard]] float tile_order_product(std::span<const BFloat16> x, std::span<const BFloat16> w);
/// What a chain of VDPBF16PS does.
[[nodiscard]] float dpbf16_product(std::span<const BFloat16> x, std::span<const BFloat16> w);
/// A group of k in weights that are codes: its scale and, where the layout has any, an offset of
/// the codes.
struct CodeGroup {
  float scale = 1;
  std::optional<float> offset;
};
/// c = fma(group's sum, scale, c), groups of `group_depth` k (16 or 32) ascending. A group's sum is
/// one chain of VDPBF16PS.
[[nodiscard]] float dpbf16_group_product(std::span<const BFloat16> x,
                                         std::span<const BFloat16> codes, std::int64_t group_depth,
                                         std::span<const CodeGroup> groups);
/// Groups of 32 k, whose sum is that of two chains, of pairs (2 r, 2 r + 8) and (2 r + 1, 2 r + 9)
/// of either half; plus offset times the sum of x, which is the tree of numerics.md over the same
/// pairs.
[[nodiscard]] float dpbf16_parity_product(std::span<const BFloat16> x,
                                          std::span<const BFloat16> codes,
                                          std::span<const CodeGroup> groups);
/// int8 activations in groups of 128 k: c = fma(sum of (code + offset) * code of x, scale * scale
/// of x, c), groups ascending. The largest |x| of a group gets the code 127.
[[nodiscard]] float int8_group_product(std::span<const float> x, std::span<const BFloat16> codes,
                                       std::span<const CodeGroup> groups);
/// One chain of fused multiply-adds.
[[nodiscard]] float f32_product(std::span<const float> x, std::span<const float> w);

}  // namespace moesaic
