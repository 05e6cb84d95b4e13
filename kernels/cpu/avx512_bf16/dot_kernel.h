#pragma once

#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512/pack_rows.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// Sums of a fused product by VDPBF16PS.
struct Bf16Rows {
  static constexpr std::size_t kStepBytes = 64;
  static std::size_t row_bytes(std::int64_t depth) { return bf16_row_bytes(depth); }

  struct Sum {
    __m512 sum;

    void begin_step() {}
    void add(const std::byte* row, int line, __m512i words) {
      const __m512i pair = _mm512_set1_epi32(*reinterpret_cast<const int*>(row + line * 4));
      sum = _mm512_dpbf16_ps(sum, (__m512bh)pair, (__m512bh)words);
    }
    void end_step() {}
    [[nodiscard]] __m512 result() const { return sum; }
  };
};

END_TARGET

template <typename Decoder>
[[gnu::noinline]] void dot_product(const TileArgs& args) noexcept {
  if (!run_fused<Decoder, Bf16Rows, 12>(args)) {
    run_decoded(args, {.decode = decode_steps<Decoder>,
                       .blocks = &avx512_bf16_blocks,
                       .row_bytes = bf16_row_bytes(args.matrix->depth),
                       .row_step_bytes = kStepDepth * 2});
  }
  scale_columns(args);
}

template <typename Decoder>
void dot_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  dot_product<Decoder>(args);
}

/// The kernel of a format whose elements become bf16, by VDPBF16PS.
template <typename Decoder>
constexpr GemmKernel avx512_bf16_decoded_kernel(Format format, const char* name) {
  return {.isa = Isa::avx512_bf16,
          .format = format,
          .name = name,
          .packed_row_bytes = bf16_row_bytes,
          .pack_rows = pack_rows<RowForm::bf16>,
          .scratch_bytes = kDecodedBytes,
          .tile = dot_tile<Decoder>,
          .decode = decode_steps<Decoder>};
}

}  // namespace
}  // namespace moesaic
