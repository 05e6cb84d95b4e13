#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/copy_steps.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"

// Tile order with fused multiply-adds. Packed rows are floats that hold bf16 values, so that a
// value is broadcast as an operand of the multiply-add; a line of a panel becomes floats by a shift
// (even k) and a mask (odd k).

namespace moesaic {
namespace {

// Steps by which each panel is prefetched ahead, at its end in the next group. Few rows wait for
// memory all the time, and the CPU's own prefetching does better if it is not overtaken; with more
// rows the multiply-adds leave memory the time to run further ahead (measured on cold weights).
constexpr std::int64_t prefetch_steps(std::size_t rows) {
  return rows <= 2 ? 1 : 4;
}

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// How a line of two k of 16 columns stands in a panel, and becomes floats.
struct Bf16Lines {
  static constexpr std::int64_t kBytes = 64;
  static void prefetch(const std::byte* ahead) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
  }
  static void load(const std::byte* line, __m512 (&weights)[2]) {
    const __m512i bits = _mm512_load_si512(line);
    const __m512i odd_mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    weights[0] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    weights[1] = _mm512_castsi512_ps(_mm512_and_si512(bits, odd_mask));
  }
};
/// As FloatPanels has them.
struct FloatLines {
  static constexpr std::int64_t kBytes = 128;
  static void prefetch(const std::byte* /*ahead*/) {}
  static void load(const std::byte* line, __m512 (&weights)[2]) {
    weights[0] = _mm512_load_ps(line);
    weights[1] = _mm512_load_ps(line + 64);
  }
};

template <typename Lines, std::size_t Rows, std::size_t Panels>
void block(const Block& args) noexcept {
  const std::byte* lines = args.panels;
  const std::byte* ahead = lines + prefetch_steps(Rows) * kTileBytes;
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
  for (std::int64_t step = 0; step < args.steps; ++step) {
    if (step + prefetch_steps(Rows) == args.steps) ahead = args.panels + Panels * args.panel_stride;
    __m512 even[Rows][Panels] = {};
    __m512 odd[Rows][Panels] = {};
    for (int pair = 0; pair < 16;
         ++pair, lines += Lines::kBytes, ahead += Lines::kBytes, rows += 8) {
      __m512 weights[Panels][2];
#pragma GCC unroll 8
      for (std::size_t p = 0; p < Panels; ++p) {
        Lines::load(lines + p * args.panel_stride, weights[p]);
        Lines::prefetch(ahead + p * args.panel_stride);
      }
#pragma GCC unroll 8
      for (std::size_t r = 0; r < Rows; ++r) {
        const auto* row = reinterpret_cast<const float*>(rows + r * args.row_bytes);
        const __m512 first = _mm512_set1_ps(row[0]);
        const __m512 second = _mm512_set1_ps(row[1]);
#pragma GCC unroll 8
        for (std::size_t p = 0; p < Panels; ++p) {
          even[r][p] = _mm512_fmadd_ps(first, weights[p][0], even[r][p]);
          odd[r][p] = _mm512_fmadd_ps(second, weights[p][1], odd[r][p]);
        }
      }
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (std::size_t p = 0; p < Panels; ++p) {
        sums[r][p] = _mm512_add_ps(sums[r][p], _mm512_add_ps(even[r][p], odd[r][p]));
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

// One row is fastest from memory if the weights are one stream, and two chains keep up with that.
template <typename Lines>
void one_row_two_panels(const Block& args) noexcept {
  Block panel = args;
  block<Lines, 1, 1>(panel);
  panel.panels += panel.panel_stride;
  panel.out += kPanelColumns;
  block<Lines, 1, 1>(panel);
}

template <typename Lines>
constexpr BlockFunction kFunctions[] = {
    block<Lines, 1, 1>, one_row_two_panels<Lines>, block<Lines, 2, 1>, block<Lines, 2, 2>,
    block<Lines, 3, 1>, block<Lines, 3, 2>,        block<Lines, 4, 1>, block<Lines, 4, 2>,
    block<Lines, 5, 1>, block<Lines, 5, 2>,        block<Lines, 6, 1>, block<Lines, 6, 2>,
};

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

void to_floats(const FloatSteps& steps, std::byte* out) noexcept {
  const std::byte* const end = steps.tiles + steps.count * kTileBytes;
  const std::byte* ahead = steps.ahead;
  for (const std::byte* line = steps.tiles; line < end; line += Bf16Lines::kBytes) {
    __m512 weights[2];
    Bf16Lines::load(line, weights);
    Bf16Lines::prefetch(ahead);
    ahead += Bf16Lines::kBytes;
    _mm512_store_ps(out, weights[0]);
    _mm512_store_ps(out + 64, weights[1]);
    out += FloatLines::kBytes;
  }
}

MOESAIC_END_TARGET

constexpr BlockTable kFloatBlocks{
    .max_rows = 6, .max_panels = 2, .functions = kFunctions<FloatLines>};
constexpr FloatPanels kFloatPanels{.blocks = kFloatBlocks, .to_floats = to_floats};

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  run_raw(args, {float_row_bytes(args.matrix->depth), kStepDepth * 4}, avx512_fma_blocks);
}

}  // namespace

constinit const BlockTable avx512_fma_blocks{
    .max_rows = 6, .max_panels = 2, .functions = kFunctions<Bf16Lines>, .floats = &kFloatPanels};

extern const GemmKernel avx512_bf16_kernel;
constinit const GemmKernel avx512_bf16_kernel{
    .isa = Isa::avx512,
    .format = Format::bf16,
    .name = "avx512/bf16",
    .packed_row_bytes = float_row_bytes,
    .pack_rows = pack_rows<RowForm::rounded_floats>,
    .scratch_bytes = kFloatBytes,
    .tile = tile,
    .decode = copy_steps,
};

}  // namespace moesaic
