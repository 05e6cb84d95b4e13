#pragma once

#include <span>

#include "src/base/dtype.h"

namespace moesaic {

// How one result of a product is defined, written for reading: no vectors, no packing, and every
// flush spelled out, so that the models do not depend on the settings of the CPU. Both operands
// have the same number of elements; the models pad them to whole steps with zeros.

/// The tile order: what TDPBF16PS does.
[[nodiscard]] float tile_order_product(std::span<const BFloat16> x, std::span<const BFloat16> w);
/// What a chain of VDPBF16PS does.
[[nodiscard]] float dpbf16_product(std::span<const BFloat16> x, std::span<const BFloat16> w);
/// One chain of fused multiply-adds.
[[nodiscard]] float f32_product(std::span<const float> x, std::span<const float> w);

}  // namespace moesaic
