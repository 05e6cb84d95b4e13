#pragma once

#include "kernels/cpu/amx/pack_tiles.h"
#include "kernels/cpu/amx/tile_product.h"
#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512/fma_rows.h"

namespace moesaic {
namespace {

/// One row has its products by AVX-512 in the order of the tiles, with the same bits: decoding into
/// registers is faster than into tiles.
template <typename Decoder>
[[gnu::noinline]] void tile_product(const TileArgs& args) noexcept {
  if (!run_fused<Decoder, FmaRows<PairOfWords>, 1>(args)) {
    run_decoded_tiles<Bf16Product>(args, bf16_tile_row_bytes(args.matrix->depth),
                                   decode_steps<Decoder>);
  }
  scale_columns(args);
}

template <typename Decoder>
void decoded_tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  const TileEnvironment environment;
  tile_product<Decoder>(args);
}

/// The kernel of a format whose elements become bf16.
template <typename Decoder>
constexpr GemmKernel amx_decoded_kernel(Format format, const char* name) {
  return {.isa = Isa::amx,
          .format = format,
          .name = name,
          .packed_row_bytes = bf16_tile_row_bytes,
          .pack_rows = pack_bf16_tiles,
          .scratch_bytes = kAheadBytes,
          .tile = decoded_tile<Decoder>,
          .decode = decode_steps<Decoder>};
}

}  // namespace
}  // namespace moesaic
