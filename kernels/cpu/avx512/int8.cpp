#define MOESAIC_AVX512_VNNI
#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/avx512/byte_kernel.h"
#include "kernels/cpu/avx512/dot_block.h"
#include "kernels/cpu/copy_steps.h"

// VPDPBUSD on activations + 128, whose surplus is subtracted at the end. Sums are exact.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

struct ByteDot {
  using Sum = __m512i;
  static Sum load(const float* from) { return _mm512_loadu_si512(from); }
  static void store(float* to, Sum sum) { _mm512_storeu_si512(to, sum); }
  static Sum add(Sum sum, __m512i values, __m512i line) {
    return _mm512_dpbusd_epi32(sum, values, line);
  }
};

MOESAIC_END_TARGET

[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  run_raw(args, {byte_row_bytes(args.matrix->depth), kIntStepDepth}, avx512_byte_blocks);
  finish_bytes(args);
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

constinit const BlockTable avx512_byte_blocks = kDotBlocks<ByteDot>;

extern const GemmKernel avx512_int8_kernel;
constinit const GemmKernel avx512_int8_kernel{
    .isa = Isa::avx512,
    .format = Format::int8,
    .name = "avx512/int8",
    .packed_row_bytes = byte_row_bytes,
    .pack_rows = pack_byte_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = copy_steps,
};

}  // namespace moesaic
