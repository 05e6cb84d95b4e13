#include "kernels/formats/f32.h"

#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/target_region.h"

// One chain of fused multiply-adds for a result. Packed rows are floats.

namespace moesaic {
namespace {

// Ahead in each panel (why two distances: kernels/cpu/avx512/bf16.cpp).
constexpr std::size_t prefetch_bytes(std::size_t rows) {
  return rows <= 2 ? 1024 : 4096;
}

MOESAIC_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq")

template <std::size_t Rows, std::size_t Panels>
void block(const Block& args) noexcept {
  const std::byte* lines = args.panels;
  const std::byte* rows = args.rows;
  __m512 sums[Rows][Panels] = {};
  if (args.resume) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      const float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
#pragma GCC unroll 8
      for (std::size_t p = 0; p < Panels; ++p) sums[r][p] = _mm512_loadu_ps(out + p * 16);
    }
  }
  for (std::int64_t k = 0; k < args.steps; ++k, lines += 64, rows += 4) {
    __m512 weights[Panels];
#pragma GCC unroll 8
    for (std::size_t p = 0; p < Panels; ++p) {
      const std::byte* line = lines + p * args.panel_stride;
      weights[p] = _mm512_load_ps(line);
      _mm_prefetch(reinterpret_cast<const char*>(line + prefetch_bytes(Rows)), _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      const __m512 value =
          _mm512_set1_ps(*reinterpret_cast<const float*>(rows + r * args.row_bytes));
#pragma GCC unroll 8
      for (std::size_t p = 0; p < Panels; ++p) {
        sums[r][p] = _mm512_fmadd_ps(value, weights[p], sums[r][p]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
    float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
#pragma GCC unroll 8
    for (std::size_t p = 0; p < Panels; ++p) _mm512_storeu_ps(out + p * 16, sums[r][p]);
  }
}

MOESAIC_END_TARGET

constexpr BlockFunction kFunctions[] = {
    block<1, 1>, block<1, 2>, block<1, 3>, block<1, 4>,  //
    block<2, 1>, block<2, 2>, block<2, 3>, block<2, 4>,  //
    block<3, 1>, block<3, 2>, block<3, 3>, block<3, 4>,  //
    block<4, 1>, block<4, 2>, block<4, 3>, block<4, 4>,  //
    block<5, 1>, block<5, 2>, block<5, 3>, block<5, 4>,  //
    block<6, 1>, block<6, 2>, block<6, 3>, block<6, 4>,
};
constexpr BlockTable kBlocks{.max_rows = 6, .max_panels = 4, .functions = kFunctions};

// A step is one k: k that are only padding are left out, since adding +0 to a sum of -0 changes it.
void tile(const TileArgs& args) noexcept {
  const PackedMatrix& matrix = *args.matrix;
  run_ranges({.rows = args.packed_rows,
              .row_bytes = float_row_bytes(matrix.depth),
              .panels = matrix.panel(args.first_panel),
              .panel_stride = static_cast<std::size_t>(matrix.panel_stride()),
              .steps = matrix.depth,
              .resume = args.resume,
              .out = args.out,
              .out_stride = args.out_stride},
             args.num_rows, args.num_panels, {sizeof(float), kPanelColumns * sizeof(float)},
             kBlocks);
}

}  // namespace

extern const GemmKernel avx512_f32_kernel;
constinit const GemmKernel avx512_f32_kernel{
    .isa = Isa::avx512,
    .format = Format::f32,
    .name = "avx512/f32",
    .packed_row_bytes = float_row_bytes,
    .pack_rows = pack_rows<RowForm::floats>,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
