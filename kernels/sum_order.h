#pragma once

#include "kernels/cpu_features.h"

namespace moesaic {

/// Whether products sum in the tile order there (docs/numerics.md), to the same bits on all that
/// do; the others are for --numerics native alone.
[[nodiscard]] constexpr bool has_tile_order(Isa isa) noexcept {
  return isa != Isa::avx512_bf16;
}

}  // namespace moesaic
