#pragma once

#include "kernels/cpu/avx2/blocks.h"
#include "kernels/cpu/avx2/pack_rows.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/fp8_channel.h"

// How a decoder of steps becomes a kernel. Internal to each kernel.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Multiplies results by the scales of their columns.
inline void scale_columns(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const bool own_scales = matrix.layout.format == Format::fp8_channel;
  if (!own_scales && matrix.scale == 1) return;
  for (std::int64_t half = 0; half < 2 * args.num_panels; ++half) {
    __m256 scales = _mm256_set1_ps(matrix.scale);
    if (own_scales) {
      const std::byte* trailer = matrix.panel(args.first_panel + half / 2) +
                                 fp8_channel_format::scales_offset(matrix.depth);
      scales = _mm256_loadu_ps(reinterpret_cast<const float*>(trailer) + half % 2 * 8);
    }
    float* out = args.out + half * 8;
    for (std::int64_t row = 0; row < args.num_rows; ++row, out += args.out_stride) {
      _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_loadu_ps(out), scales));
    }
  }
}

MOESAIC_END_TARGET

template <DecodeSteps Decode>
[[gnu::noinline]] void fma_product(const TileArgs& args) noexcept {
  run_decoded(args, {.decode = Decode,
                     .blocks = &avx2_fma_blocks,
                     .rows = {float_row_bytes(args.matrix->depth), kStepDepth * 4}});
  scale_columns(args);
}

template <DecodeSteps Decode>
void fma_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  fma_product<Decode>(args);
}

/// The kernel of a format whose elements become bf16, in the tile order.
template <DecodeSteps Decode>
constexpr GemmKernel avx2_decoded_kernel(Format format, const char* name) {
  return {.isa = Isa::avx2,
          .format = format,
          .name = name,
          .packed_row_bytes = float_row_bytes,
          .pack_rows = pack_rows<RowForm::rounded_floats>,
          .scratch_bytes = kDecodedBytes,
          .tile = fma_tile<Decode>,
          .decode = Decode};
}

}  // namespace
}  // namespace moesaic
