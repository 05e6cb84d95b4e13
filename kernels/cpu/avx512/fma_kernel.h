#pragma once

#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512/fma_rows.h"
#include "kernels/cpu/avx512/pack_rows.h"

namespace moesaic {
namespace {

template <typename Decoder>
[[gnu::noinline]] void fma_product(const TileArgs& args) noexcept {
  if (!run_fused<Decoder, FmaRows, 8>(args)) {
    run_decoded(args, {.decode = decode_steps<Decoder>,
                       .blocks = &avx512_fma_blocks,
                       .rows = {float_row_bytes(args.matrix->depth), kStepDepth * 4}});
  }
  scale_columns(args);
}

template <typename Decoder>
void fma_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  fma_product<Decoder>(args);
}

/// The kernel of a format whose elements become bf16, in the tile order.
template <typename Decoder>
constexpr GemmKernel avx512_decoded_kernel(Format format, const char* name) {
  return {.isa = Isa::avx512,
          .format = format,
          .name = name,
          .packed_row_bytes = float_row_bytes,
          .pack_rows = pack_rows<RowForm::rounded_floats>,
          .scratch_bytes = kDecodedBytes + kFloatBytes,
          .tile = fma_tile<Decoder>,
          .decode = decode_steps<Decoder>};
}

}  // namespace
}  // namespace moesaic
