#pragma once

#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// k that transpose_step brings into two panels of 16 columns at a time.
inline constexpr std::int64_t kTransposedDepth = 32;

/// Bytes of one panel of the transposed matrix: bf16, or f32 for f32 matrices.
[[nodiscard]] std::int64_t transposed_panel_bytes(const PackedMatrix& matrix) noexcept;

/// Packs W^T's rows k = 32 step .. 32 step + 31, W [n, k] being `matrix`, as two panels of depth n:
/// bf16 values as `kernel` decodes them, without the scales of W's rows, or f32. `out` has twice
/// transposed_panel_bytes(matrix) bytes, 64-byte aligned.
void transpose_step(const GemmKernel& kernel, const PackedMatrix& matrix, std::int64_t step,
                    std::byte* out);

}  // namespace moesaic
