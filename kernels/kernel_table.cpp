#include "kernels/kernel_table.h"

#include <array>

#include "kernels/kernel_list.h"

namespace moesaic {

#define MOESAIC_DECLARE(isa, format) extern const GemmKernel isa##_##format##_kernel;
MOESAIC_GEMM_KERNELS(MOESAIC_DECLARE)
#undef MOESAIC_DECLARE
#define MOESAIC_DECLARE(isa, kind) extern const AttentionKernel isa##_attention_##kind##_kernel;
MOESAIC_ATTENTION_KERNELS(MOESAIC_DECLARE)
#undef MOESAIC_DECLARE
#define MOESAIC_DECLARE(isa) extern const VectorKernels isa##_vector_kernels;
MOESAIC_VECTOR_KERNELS(MOESAIC_DECLARE)
#undef MOESAIC_DECLARE

namespace {

#define MOESAIC_ADDRESS(isa, format) &isa##_##format##_kernel,
constexpr const GemmKernel* kGemmKernels[] = {MOESAIC_GEMM_KERNELS(MOESAIC_ADDRESS)};
#undef MOESAIC_ADDRESS

#define MOESAIC_ADDRESS(isa, kind) &isa##_attention_##kind##_kernel,
constexpr const AttentionKernel* kAttentionKernels[] = {MOESAIC_ATTENTION_KERNELS(MOESAIC_ADDRESS)};
#undef MOESAIC_ADDRESS

#define MOESAIC_ADDRESS(isa) &isa##_vector_kernels,
constexpr const VectorKernels* kVectorKernels[] = {MOESAIC_VECTOR_KERNELS(MOESAIC_ADDRESS)};
#undef MOESAIC_ADDRESS

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

namespace {

constexpr std::size_t kNumActivations = 2;  // of Int4Activations
using Nearest = std::array<std::array<const GemmKernel*, kNumActivations>, kNumFormats>;

std::array<Nearest, kNumIsas> find_nearest() {
  std::array<Nearest, kNumIsas> nearest{};
  for (std::size_t isa = 0; isa < kNumIsas; ++isa) {
    if (isa > 0) nearest[isa] = nearest[isa - 1];
    for (const GemmKernel* kernel : kGemmKernels) {
      if (kernel->isa != static_cast<Isa>(isa) || !is_usable(*kernel)) continue;
      nearest[isa][static_cast<std::size_t>(kernel->format)]
             [static_cast<std::size_t>(kernel->int4_activations)] = kernel;
    }
  }
  return nearest;
}

}  // namespace

const GemmKernel& find_gemm_kernel(Isa isa, Format format, Int4Activations int4_activations) {
  static const std::array<Nearest, kNumIsas> nearest = find_nearest();
  return *nearest[static_cast<std::size_t>(isa)][static_cast<std::size_t>(format)]
                 [static_cast<std::size_t>(int4_activations)];
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
