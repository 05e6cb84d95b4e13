#include "kernels/formats/bf16.h"

#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/target_region.h"

// VDPBF16PS: c = fma(even, fma(odd, c)) for each pair of k, ascending, one chain for a result; not
// the tile order. The instruction rounds to nearest and flushes subnormals whatever MXCSR says.
// Packed rows are bf16.

namespace moesaic {
namespace {

// Twelve rows by two panels rather than six by four: up to twelve rows then need the weights from
// memory once, with enough multiply-adds on each line to hide it.
constexpr std::size_t kMaxRows = 12;
constexpr std::size_t kMaxPanels = 2;
// Steps by which each panel is prefetched ahead, at its end in the next group (why two distances:
// kernels/cpu/avx512/bf16.cpp).
constexpr std::int64_t prefetch_steps(std::size_t rows) {
  return rows <= 4 ? 1 : 4;
}

BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

template <std::size_t Rows, std::size_t Panels>
void block(const Block& args) noexcept {
  const std::int64_t steps = round_up(args.depth, kStepDepth) / kStepDepth;
  const std::byte* lines = args.panels;
  const std::byte* ahead = lines + prefetch_steps(Rows) * 1024;
  const std::byte* rows = args.rows;
  __m512 sums[Rows][Panels] = {};
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + prefetch_steps(Rows) == steps) ahead += (Panels - 1) * args.panel_bytes;
    for (int pair = 0; pair < 16; ++pair, lines += 64, ahead += 64, rows += 4) {
      __m512bh weights[Panels];
#pragma GCC unroll 12
      for (std::size_t p = 0; p < Panels; ++p) {
        weights[p] = (__m512bh)_mm512_load_si512(lines + p * args.panel_bytes);
        _mm_prefetch(reinterpret_cast<const char*>(ahead + p * args.panel_bytes), _MM_HINT_T1);
      }
#pragma GCC unroll 12
      for (std::size_t r = 0; r < Rows; ++r) {
        const auto* row = reinterpret_cast<const int*>(rows + r * args.row_bytes);
        const auto value = (__m512bh)_mm512_set1_epi32(*row);
#pragma GCC unroll 12
        for (std::size_t p = 0; p < Panels; ++p) {
          sums[r][p] = _mm512_dpbf16_ps(sums[r][p], value, weights[p]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t r = 0; r < Rows; ++r) {
    float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
#pragma GCC unroll 12
    for (std::size_t p = 0; p < Panels; ++p) _mm512_storeu_ps(out + p * 16, sums[r][p]);
  }
}

END_TARGET

constexpr BlockFunction kBlocks[kMaxRows][kMaxPanels] = {
    {block<1, 1>, block<1, 2>},   {block<2, 1>, block<2, 2>},   {block<3, 1>, block<3, 2>},
    {block<4, 1>, block<4, 2>},   {block<5, 1>, block<5, 2>},   {block<6, 1>, block<6, 2>},
    {block<7, 1>, block<7, 2>},   {block<8, 1>, block<8, 2>},   {block<9, 1>, block<9, 2>},
    {block<10, 1>, block<10, 2>}, {block<11, 1>, block<11, 2>}, {block<12, 1>, block<12, 2>},
};

void tile(const TileArgs& args) noexcept {
  run_blocks(args, bf16_row_bytes(args.depth),
             static_cast<std::size_t>(bf16_format::panel_bytes(args.depth)), kBlocks);
}

}  // namespace

extern const GemmKernel avx512_bf16_bf16_kernel;
constinit const GemmKernel avx512_bf16_bf16_kernel{
    .isa = Isa::avx512_bf16,
    .format = Format::bf16,
    .name = "avx512_bf16/bf16",
    .packed_row_bytes = bf16_row_bytes,
    .pack_rows = pack_rows<RowForm::bf16>,
    .tile = tile,
};

}  // namespace moesaic
