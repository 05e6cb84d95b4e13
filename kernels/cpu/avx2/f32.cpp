#include "kernels/formats/f32.h"

#include "kernels/cpu/avx2/pack_rows.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/target_region.h"

// One chain of fused multiply-adds for a result. Packed rows are floats.

namespace moesaic {
namespace {

// Ahead in the panels, which are one stream over a whole depth (why two distances:
// kernels/cpu/avx512/bf16.cpp).
constexpr std::size_t prefetch_bytes(std::size_t rows) {
  return rows <= 2 ? 1024 : 4096;
}

MOESAIC_BEGIN_TARGET("avx2,fma")

template <std::size_t Rows>
void block(const Block& args) noexcept {
  const std::byte* lines = args.panels;
  const std::byte* rows = args.rows;
  __m256 sums[Rows][2] = {};
  if (args.resume) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      const float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
      sums[r][0] = _mm256_loadu_ps(out);
      sums[r][1] = _mm256_loadu_ps(out + 8);
    }
  }
  for (std::int64_t k = 0; k < args.steps; ++k, lines += 64, rows += 4) {
    const __m256 left = _mm256_load_ps(reinterpret_cast<const float*>(lines));
    const __m256 right = _mm256_load_ps(reinterpret_cast<const float*>(lines + 32));
    _mm_prefetch(reinterpret_cast<const char*>(lines + prefetch_bytes(Rows)), _MM_HINT_T1);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      const __m256 value =
          _mm256_broadcast_ss(reinterpret_cast<const float*>(rows + r * args.row_bytes));
      sums[r][0] = _mm256_fmadd_ps(value, left, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(value, right, sums[r][1]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
    float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
    _mm256_storeu_ps(out, sums[r][0]);
    _mm256_storeu_ps(out + 8, sums[r][1]);
  }
}

MOESAIC_END_TARGET

constexpr BlockFunction kFunctions[] = {block<1>, block<2>, block<3>, block<4>, block<5>, block<6>};
constexpr BlockTable kBlocks{.max_rows = 6, .max_panels = 1, .functions = kFunctions};

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

extern const GemmKernel avx2_f32_kernel;
constinit const GemmKernel avx2_f32_kernel{
    .isa = Isa::avx2,
    .format = Format::f32,
    .name = "avx2/f32",
    .packed_row_bytes = float_row_bytes,
    .pack_rows = pack_rows<RowForm::floats>,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
