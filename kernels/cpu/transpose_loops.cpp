#include "kernels/cpu/transpose_loops.h"

#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/narrow_outer.h"
#include "kernels/cpu/scalar/transpose.h"

namespace moesaic {

extern const TransposeLoops avx2_transpose_loops;
extern const TransposeLoops avx512_transpose_loops;

namespace {

constexpr TransposeLoops kScalar{
    .bf16_step = scalar::bf16_step,
    .widen_int8 = scalar::widen_int8,
    .f32_lines = scalar::f32_lines,
    .load_block = scalar::load_block,
    .bf16_blocks = scalar::bf16_blocks,
    .stream_rows = scalar::stream_rows,
    .scale_row = scalar::scale_row,
    .narrow_product = narrow_product,
};

}  // namespace

const TransposeLoops& find_transpose_loops(Isa isa) noexcept {
  if (isa >= Isa::avx512) return avx512_transpose_loops;
  return isa == Isa::avx2 ? avx2_transpose_loops : kScalar;
}

}  // namespace moesaic
