#include "kernels/kernel_table.h"

namespace moesaic {

#define MOESAIC_GEMM_KERNEL(isa, format) extern const GemmKernel isa##_##format##_kernel;
#define MOESAIC_ATTENTION_KERNEL(isa, kind) \
  extern const AttentionKernel isa##_attention_##kind##_kernel;
#define MOESAIC_VECTOR_KERNELS(isa) extern const VectorKernels isa##_vector_kernels;
#include "kernel_table.inc"
#undef MOESAIC_GEMM_KERNEL
#undef MOESAIC_ATTENTION_KERNEL
#undef MOESAIC_VECTOR_KERNELS

namespace {

constexpr const GemmKernel* kGemmKernels[] = {
#define MOESAIC_GEMM_KERNEL(isa, format) &isa##_##format##_kernel,
#include "kernel_table.inc"
#undef MOESAIC_GEMM_KERNEL
};

constexpr const AttentionKernel* kAttentionKernels[] = {
#define MOESAIC_ATTENTION_KERNEL(isa, kind) &isa##_attention_##kind##_kernel,
#include "kernel_table.inc"
#undef MOESAIC_ATTENTION_KERNEL
};

constexpr const VectorKernels* kVectorKernels[] = {
#define MOESAIC_VECTOR_KERNELS(isa) &isa##_vector_kernels,
#include "kernel_table.inc"
#undef MOESAIC_VECTOR_KERNELS
};

}  // namespace

std::span<const GemmKernel* const> all_gemm_kernels() noexcept {
  return kGemmKernels;
}

std::span<const AttentionKernel* const> all_attention_kernels() noexcept {
  return kAttentionKernels;
}

std::span<const VectorKernels* const> all_vector_kernels() noexcept {
  return kVectorKernels;
}

bool is_usable(const GemmKernel& kernel) {
  const bool of_int8 =
      is_integer(kernel.format) || kernel.int4_activations == Int4Activations::int8;
  const bool needs_vnni = kernel.isa == Isa::avx512 && of_int8;
  return is_supported(kernel.isa) && (!needs_vnni || has_avx512_vnni());
}

bool takes_layout(const GemmKernel& kernel, const Layout& layout) noexcept {
  return kernel.format == layout.format &&
         (kernel.int4_activations == Int4Activations::bf16 || allows_int8_groups(layout));
}

const GemmKernel& find_gemm_kernel(Isa isa, Format format, Int4Activations int4_activations) {
  const GemmKernel* best = nullptr;
  for (const GemmKernel* kernel :
       kGemmKernels) {  // ascending: the last one that fits is the nearest
    const bool fits = kernel->format == format && kernel->isa <= isa &&
                      kernel->int4_activations == int4_activations;
    if (fits && is_usable(*kernel)) best = kernel;
  }
  return *best;
}

const AttentionKernel& find_attention_kernel(Isa isa, AttentionKind kind) noexcept {
  const AttentionKernel* best = nullptr;
  for (const AttentionKernel* kernel : kAttentionKernels) {
    if (kernel->kind == kind && kernel->isa <= isa) best = kernel;
  }
  return *best;
}

const VectorKernels& find_vector_kernels(Isa isa) noexcept {
  const VectorKernels* best = nullptr;
  for (const VectorKernels* kernels : kVectorKernels) {
    if (kernels->isa <= isa) best = kernels;
  }
  return *best;
}

}  // namespace moesaic
