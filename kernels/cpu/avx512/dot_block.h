#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/block_loop.h"

// A block of rows times panels by an instruction that sums two products of bf16, or four of int8,
// into each of 16 lanes. Internal to the kernels that use it.

namespace moesaic {
namespace {

// Steps by which each panel is prefetched ahead, at its end in the next group. Few rows wait for
// memory all the time, and the CPU's own prefetching does better if it is not overtaken; with more
// rows the products leave memory the time to run further ahead (measured on cold weights).
constexpr std::int64_t prefetch_steps(std::size_t rows) {
  return rows <= 4 ? 1 : 4;
}

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Dot::Sum is a register of 16 sums, Dot::add(sum, values, line) what the instruction does.
template <typename Dot, std::size_t Rows, std::size_t Panels>
void dot_block(const Block& args) noexcept {
  using Sum = typename Dot::Sum;
  const std::byte* lines = args.panels;
  const std::byte* ahead = lines + prefetch_steps(Rows) * kTileBytes;
  const std::byte* rows = args.rows;
  Sum sums[Rows][Panels] = {};
  if (args.resume) {
#pragma GCC unroll 12
    for (std::size_t r = 0; r < Rows; ++r) {
      const float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
#pragma GCC unroll 12
      for (std::size_t p = 0; p < Panels; ++p) sums[r][p] = Dot::load(out + p * 16);
    }
  }
  for (std::int64_t step = 0; step < args.steps; ++step) {
    if (step + prefetch_steps(Rows) == args.steps) ahead = args.panels + Panels * args.panel_stride;
    for (int line = 0; line < 16; ++line, lines += 64, ahead += 64, rows += 4) {
      __m512i weights[Panels];
#pragma GCC unroll 12
      for (std::size_t p = 0; p < Panels; ++p) {
        weights[p] = _mm512_load_si512(lines + p * args.panel_stride);
        _mm_prefetch(reinterpret_cast<const char*>(ahead + p * args.panel_stride), _MM_HINT_T1);
      }
#pragma GCC unroll 12
      for (std::size_t r = 0; r < Rows; ++r) {
        const auto* row = reinterpret_cast<const int*>(rows + r * args.row_bytes);
        const __m512i value = _mm512_set1_epi32(*row);
#pragma GCC unroll 12
        for (std::size_t p = 0; p < Panels; ++p) {
          sums[r][p] = Dot::add(sums[r][p], value, weights[p]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t r = 0; r < Rows; ++r) {
    float* out = args.out + static_cast<std::int64_t>(r) * args.out_stride;
#pragma GCC unroll 12
    for (std::size_t p = 0; p < Panels; ++p) Dot::store(out + p * 16, sums[r][p]);
  }
}

MOESAIC_END_TARGET

// Twelve rows by two panels rather than six by four: up to twelve rows then need the weights from
// memory once, with enough products on each line to hide it.
template <typename Dot>
constexpr BlockFunction kDotFunctions[] = {
    dot_block<Dot, 1, 1>,  dot_block<Dot, 1, 2>,  dot_block<Dot, 2, 1>,  dot_block<Dot, 2, 2>,
    dot_block<Dot, 3, 1>,  dot_block<Dot, 3, 2>,  dot_block<Dot, 4, 1>,  dot_block<Dot, 4, 2>,
    dot_block<Dot, 5, 1>,  dot_block<Dot, 5, 2>,  dot_block<Dot, 6, 1>,  dot_block<Dot, 6, 2>,
    dot_block<Dot, 7, 1>,  dot_block<Dot, 7, 2>,  dot_block<Dot, 8, 1>,  dot_block<Dot, 8, 2>,
    dot_block<Dot, 9, 1>,  dot_block<Dot, 9, 2>,  dot_block<Dot, 10, 1>, dot_block<Dot, 10, 2>,
    dot_block<Dot, 11, 1>, dot_block<Dot, 11, 2>, dot_block<Dot, 12, 1>, dot_block<Dot, 12, 2>,
};

template <typename Dot>
constexpr BlockTable kDotBlocks{.max_rows = 12, .max_panels = 2, .functions = kDotFunctions<Dot>};

}  // namespace
}  // namespace moesaic
