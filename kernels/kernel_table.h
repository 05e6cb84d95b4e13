#pragma once

#include <span>

#include "kernels/attention_kernel.h"
#include "kernels/gemm_kernel.h"
#include "kernels/vector_kernels.h"

namespace moesaic {

/// Every GEMM kernel of this build, in Isa order.
[[nodiscard]] std::span<const GemmKernel* const> all_gemm_kernels() noexcept;
/// Every attention kernel of this build, in Isa order.
[[nodiscard]] std::span<const AttentionKernel* const> all_attention_kernels() noexcept;
/// Every table of vector kernels of this build, in Isa order.
[[nodiscard]] std::span<const VectorKernels* const> all_vector_kernels() noexcept;

/// The kernel of exactly this instruction set, or of the nearest simpler one that has the format
/// and that this CPU can run; scalar has every format. int8 activations: of int4_group only.
[[nodiscard]] const GemmKernel& find_gemm_kernel(
    Isa isa, Format format, Int4Activations int4_activations = Int4Activations::bf16);
/// Whether this CPU can run it. Products of int8 under `avx512` need VNNI besides.
[[nodiscard]] bool is_usable(const GemmKernel& kernel);
/// That of this instruction set, or of the nearest simpler one.
[[nodiscard]] const AttentionKernel& find_attention_kernel(Isa isa, AttentionKind kind) noexcept;
[[nodiscard]] const VectorKernels& find_vector_kernels(Isa isa) noexcept;

}  // namespace moesaic
