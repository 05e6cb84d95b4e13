#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/avx512/dot_block.h"
#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/copy_steps.h"
#include "kernels/cpu/row_layout.h"

// VDPBF16PS: c = fma(even, fma(odd, c)) for each pair of k, ascending, one chain for a result; not
// the tile order. The instruction rounds to nearest and flushes subnormals whatever MXCSR says.
// Packed rows are bf16.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

struct Bf16Dot {
  using Sum = __m512;
  static Sum load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
  static Sum add(Sum sum, __m512i values, __m512i line) {
    return _mm512_dpbf16_ps(sum, (__m512bh)values, (__m512bh)line);
  }
};

MOESAIC_END_TARGET

void tile(const TileArgs& args) noexcept {
  run_raw(args, {bf16_row_bytes(args.matrix->depth), kStepDepth * 2}, avx512_bf16_blocks);
}

}  // namespace

constinit const BlockTable avx512_bf16_blocks = kDotBlocks<Bf16Dot>;

extern const GemmKernel avx512_bf16_bf16_kernel;
constinit const GemmKernel avx512_bf16_bf16_kernel{
    .isa = Isa::avx512_bf16,
    .format = Format::bf16,
    .name = "avx512_bf16/bf16",
    .packed_row_bytes = bf16_row_bytes,
    .pack_rows = pack_rows<RowForm::bf16>,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = copy_steps,
};

}  // namespace moesaic
