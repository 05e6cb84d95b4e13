#pragma once

#include <cstring>

#include "kernels/gemm_kernel.h"

namespace moesaic {

/// GemmKernel::decode of raw weights.
inline void copy_steps(const StepRange& steps, std::byte* out) noexcept {
  std::memcpy(out, steps.matrix->panel(steps.panel) + steps.first * kTileBytes,
              static_cast<std::size_t>(steps.count * kTileBytes));
}

}  // namespace moesaic
