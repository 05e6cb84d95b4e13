#pragma once

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/prefetch.h"

// One row: weights become floats in registers where they are multiplied, in place of steps that are
// decoded into memory first. Internal to each kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// The row times one panel. Decoder(matrix, panel) has kStepBytes of codes; sum_step(step, codes,
/// row, chains), two vectors for columns 0 to 7 and two for 8 to 15: the even and the odd chain of
/// eight columns, or both chains of four; and join(first, second), which adds even and odd.
template <typename Decoder>
void multiply_row(const TileArgs& args, std::int64_t panel) {
  const PackedMatrix& matrix = *args.matrix;
  Decoder decoder(matrix, args.first_panel + panel);
  const auto* row = reinterpret_cast<const float*>(args.packed_rows);
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  const std::byte* codes = matrix.panel(args.first_panel + panel);
  __m256 left = _mm256_setzero_ps();
  __m256 right = _mm256_setzero_ps();
  for (std::int64_t step = 0; step < steps; ++step, row += kStepDepth) {
    prefetch_lines(codes + kPrefetchBytes, Decoder::kStepBytes / 64);
    __m256 chains[4] = {};
    decoder.sum_step(step, codes, row, chains);
    left = _mm256_add_ps(left, Decoder::join(chains[0], chains[1]));
    right = _mm256_add_ps(right, Decoder::join(chains[2], chains[3]));
    codes += Decoder::kStepBytes;
  }
  float* const out = args.out + panel * kPanelColumns;
  _mm256_storeu_ps(out, left);
  _mm256_storeu_ps(out + 8, right);
}

MOESAIC_END_TARGET

template <typename Decoder>
[[gnu::noinline]] void row_product(const TileArgs& args) noexcept {
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    multiply_row<Decoder>(args, panel);
  }
  scale_columns(args);
}

/// One row by `Decoder`, more by steps that `Decode` decodes.
template <typename Decoder, DecodeSteps Decode>
void row_or_fma_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  args.num_rows == 1 ? row_product<Decoder>(args) : fma_product<Decode>(args);
}

template <typename Decoder, DecodeSteps Decode>
constexpr GemmKernel avx2_decoded_kernel(Format format, const char* name) {
  GemmKernel kernel = avx2_decoded_kernel<Decode>(format, name);
  kernel.tile = row_or_fma_tile<Decoder, Decode>;
  return kernel;
}

}  // namespace
}  // namespace moesaic
