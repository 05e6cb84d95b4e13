#pragma once

#include "kernels/cpu/amx/decoded_tiles.h"
#include "kernels/cpu/amx/turned_tiles.h"
#include "kernels/cpu/avx512/fma_rows.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// The one packed row of a product as floats.
inline void expand_row(const std::byte* row, std::int64_t depth, std::byte* out) {
  for (std::int64_t k = 0; k < round_up(depth, kStepDepth); k += 16) {
    const auto* words = reinterpret_cast<const __m256i*>(row + k * 2);
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_load_si256(words));
    _mm512_store_si512(out + k * 4, _mm512_slli_epi32(bits, 16));
  }
}

/// Multiplies sums by the scales of their columns.
class ScaleFinish {
 public:
  explicit ScaleFinish(const TileArgs& args) : args_(args) {}

  void operator()(std::int64_t first_row, std::int64_t rows, std::int64_t panel,
                  std::int64_t panels) const {
    TileArgs part = args_;
    part.num_rows = rows;
    part.first_panel += panel;
    part.num_panels = panels;
    part.out += first_row * part.out_stride + panel * kPanelColumns;
    scale_columns(part);
  }

 private:
  const TileArgs& args_;
};

MOESAIC_END_TARGET

/// The product of one row by AVX-512 in the order of the tiles, with the same bits: where a decoder
/// has floats, decoding into registers is faster than into tiles. False where it is not.
template <typename Decoder>
bool multiply_one_row(const TileArgs& args) {
  if constexpr (HasFloats<Decoder>) {
    const std::int64_t depth = args.matrix->depth;
    if (args.num_rows > 1 || float_row_bytes(depth) > std::size_t{kPairRingBytes}) return false;
    TileArgs row = args;
    expand_row(args.packed_rows, depth, args.scratch);
    row.packed_rows = args.scratch;
    run_fused<Decoder, FmaRows, 1>(row);
    scale_columns(args);
    return true;
  }
  return false;
}

template <typename Decoder>
[[gnu::noinline]] void tile_product(const TileArgs& args) noexcept {
  if (multiply_one_row<Decoder>(args)) return;
  run_decoded_tiles<Bf16Product, ScaleFinish, Decoder>(args,
                                                       bf16_tile_row_bytes(args.matrix->depth));
}

template <typename Decoder>
void decoded_tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  const TileEnvironment environment;
  tile_product<Decoder>(args);
}

/// None for formats of 4 bits, which take longer to decode than the products take that would hide
/// it: turned several steps at a time before, they are up to 5 % faster.
template <typename Decoder>
constexpr decltype(GemmKernel::turned_tile) turned_tile_of() {
  if constexpr (Decoder::kStepBytes >= kTileBytes / 2) return turned_tile<DecodedLines<Decoder>>;
  return nullptr;
}

/// The kernel of a format whose elements become bf16.
template <typename Decoder>
constexpr GemmKernel amx_decoded_kernel(Format format, const char* name) {
  return {.isa = Isa::amx,
          .format = format,
          .name = name,
          .packed_row_bytes = bf16_tile_row_bytes,
          .pack_rows = pack_bf16_tiles,
          .scratch_bytes = kPairRingBytes,
          .tile = decoded_tile<Decoder>,
          .streams_results = true,
          .turned_tile = turned_tile_of<Decoder>(),
          .decode = decode_steps<Decoder>};
}

}  // namespace
}  // namespace moesaic
