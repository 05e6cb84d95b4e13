#pragma once

#include <span>

#include "kernels/gemm_kernel.h"
#include "kernels/vector_kernels.h"

namespace moesaic {

/// Every GEMM kernel of this build, in Isa order.
[[nodiscard]] std::span<const GemmKernel* const> all_gemm_kernels() noexcept;
/// Every table of vector kernels of this build, in Isa order.
[[nodiscard]] std::span<const VectorKernels* const> all_vector_kernels() noexcept;

/// The kernel of exactly this instruction set, or of the nearest simpler one in the tile order that
/// has the format; never null, since scalar has every format.
[[nodiscard]] const GemmKernel& find_gemm_kernel(Isa isa, Format format) noexcept;
[[nodiscard]] const VectorKernels& find_vector_kernels(Isa isa) noexcept;

}  // namespace moesaic
