#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/transpose_loops.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// Steps of 32 k that transpose_steps brings into panels at a time, at most.
inline constexpr std::int64_t kTransposedSteps = 8;

/// Bytes of one panel of the transposed matrix: bf16, or f32 for f32 matrices.
[[nodiscard]] std::int64_t transposed_panel_bytes(const PackedMatrix& matrix) noexcept;

/// What turns panels: the kernel that decodes the format, and the instruction set's loops.
struct PanelTurner {
  const GemmKernel* kernel;
  const TransposeLoops* loops;
};

/// Packs rows k = 32 first .. 32 (first + count) - 1 of W^T, W [n, k] being `matrix`, as 2 count
/// panels of depth n: bf16 values as `kernel` decodes them, without the scales of W's rows, or f32.
/// `out` has 2 count transposed_panel_bytes(matrix) bytes, 64-byte aligned. count is at most
/// kTransposedSteps, and less where first is odd.
void transpose_steps(const PanelTurner& turner, const PackedMatrix& matrix, std::int64_t first,
                     std::int64_t count, std::byte* out) noexcept;

/// Whether results of products with the matrix are multiplied by scales of its rows.
[[nodiscard]] bool has_row_scales(const PackedMatrix& matrix) noexcept;
/// Those scales, times that of the matrix: `out` [matrix.rows].
void load_row_scales(const PackedMatrix& matrix, float* out) noexcept;

}  // namespace moesaic
