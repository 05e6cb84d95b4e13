#include "kernels/cpu/avx2/blocks.h"
#include "kernels/cpu/avx2/pack_rows.h"
#include "kernels/cpu/copy_steps.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/target_region.h"
#include "kernels/cpu/tile_environment.h"

// Tile order with fused multiply-adds. Packed rows are floats that hold bf16 values. With 16
// registers the even and the odd k of a step are summed one after the other from 4 rows on: 12
// sums, 2 weights and 1 value fit.

namespace moesaic {
namespace {

// Ahead in the panels, which are one stream over a whole depth (why two distances:
// kernels/cpu/avx512/bf16.cpp).
constexpr std::size_t prefetch_bytes(std::size_t rows) {
  return rows <= 2 ? 1024 : 4096;
}

MOESAIC_BEGIN_TARGET("avx2,fma")

enum class Parity { even, odd };

// Left and right half of a line as floats.
template <Parity Which>
[[gnu::always_inline]] inline __m256 load_weights(const std::byte* half) {
  const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(half));
  if constexpr (Which == Parity::even) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  } else {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    return _mm256_castsi256_ps(_mm256_and_si256(bits, mask));
  }
}

template <Parity Which>
[[gnu::always_inline]] inline __m256 load_value(const std::byte* row) {
  return _mm256_broadcast_ss(reinterpret_cast<const float*>(row) + (Which == Parity::odd ? 1 : 0));
}

// The multiply-adds of one parity of a line.
template <Parity Which, std::size_t Rows>
[[gnu::always_inline]] inline void add_line(const std::byte* rows, std::size_t row_bytes,
                                            const std::byte* line, __m256 (&sums)[Rows][2]) {
  const __m256 left = load_weights<Which>(line);
  const __m256 right = load_weights<Which>(line + 32);
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
    const __m256 value = load_value<Which>(rows + r * row_bytes);
    sums[r][0] = _mm256_fmadd_ps(value, left, sums[r][0]);
    sums[r][1] = _mm256_fmadd_ps(value, right, sums[r][1]);
  }
}

// The chains of a step. Of few rows both parities go side by side: two chains alone would wait for
// their own additions.
template <std::size_t Rows>
[[gnu::always_inline]] inline void sum_step(const std::byte* rows, std::size_t row_bytes,
                                            const std::byte* lines, __m256 (&even)[Rows][2],
                                            __m256 (&odd)[Rows][2]) {
  constexpr bool kSideBySide = Rows <= 3;
  for (int line = 0; line < 16; ++line) {
    const std::byte* const at = lines + 64 * line;
    _mm_prefetch(reinterpret_cast<const char*>(at + prefetch_bytes(Rows)), _MM_HINT_T1);
    add_line<Parity::even>(rows + 8 * line, row_bytes, at, even);
    if constexpr (kSideBySide) add_line<Parity::odd>(rows + 8 * line, row_bytes, at, odd);
  }
  if constexpr (!kSideBySide) {
    for (int line = 0; line < 16; ++line) {
      add_line<Parity::odd>(rows + 8 * line, row_bytes, lines + 64 * line, odd);
    }
  }
}

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
  for (std::int64_t step = 0; step < args.steps;
       ++step, lines += kTileBytes, rows += kStepDepth * 4) {
    __m256 even[Rows][2] = {};
    __m256 odd[Rows][2] = {};
    sum_step(rows, args.row_bytes, lines, even, odd);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      sums[r][0] = _mm256_add_ps(sums[r][0], _mm256_add_ps(even[r][0], odd[r][0]));
      sums[r][1] = _mm256_add_ps(sums[r][1], _mm256_add_ps(even[r][1], odd[r][1]));
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

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  run_raw(args, {float_row_bytes(args.matrix->depth), kStepDepth * 4}, avx2_fma_blocks);
}

}  // namespace

constinit const BlockTable avx2_fma_blocks{.max_rows = 6, .max_panels = 1, .functions = kFunctions};

extern const GemmKernel avx2_bf16_kernel;
constinit const GemmKernel avx2_bf16_kernel{
    .isa = Isa::avx2,
    .format = Format::bf16,
    .name = "avx2/bf16",
    .packed_row_bytes = float_row_bytes,
    .pack_rows = pack_rows<RowForm::rounded_floats>,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = copy_steps,
};

}  // namespace moesaic
