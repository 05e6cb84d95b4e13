#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512_bf16/group_sums.h"

// Kernels of formats whose scales belong to groups of k: c = fma(sum of the group, scale, c), one
// group after the other, where the sum is that of activations times codes. Scaling sums rather than
// weights leaves nothing to be done for a weight but the look-up of its code. Internal to each
// kernel.
//
// `Groups` is a format:
//
//   Sum                  what adds up a group (group_sums.h)
//   kOffsets             whether offsets() times the sum of the row's values belongs to a group
//   kStepBytes           of the codes of a step, which a panel starts with
//   Groups(matrix, panel)
//   codes(step, emit)    emit(line, words): the 16 lines of a step, bf16
//   scales(step, group)  of 16 columns; the groups of a step count from 0
//   offsets(step)        of 16 columns, if kOffsets
//   scales_at(step)      where they are, if the panel has any

namespace moesaic {
namespace {

/// Bytes by which codes are asked for before they are read.
constexpr std::int64_t kCodesAhead = 8192;

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// c + the group's share of it. `step_sum` is that of the row's values if there are offsets.
template <typename Groups>
[[gnu::always_inline]] inline __m512 add_group(__m512 c, const typename Groups::Sum& sum,
                                               const Groups& groups, std::int64_t step, int group,
                                               const std::byte* row, std::int64_t depth) {
  __m512 columns = sum.columns();
  if constexpr (Groups::kOffsets) {
    const float step_sum = Groups::Sum::step_sums(row, depth)[step];
    columns = _mm512_fmadd_ps(groups.offsets(step), _mm512_set1_ps(step_sum), columns);
  }
  return _mm512_fmadd_ps(columns, groups.scales(step, group), c);
}

/// Rows [first_row, first_row + NumRows) times one panel.
template <typename Groups, std::size_t NumRows>
[[gnu::noinline]] void multiply_groups(const TileArgs& args, std::int64_t panel,
                                       std::int64_t first_row) noexcept {
  using Sum = typename Groups::Sum;
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t depth = matrix.depth;
  const std::size_t row_bytes = Sum::row_bytes(depth);
  const std::byte* const rows = args.packed_rows + static_cast<std::size_t>(first_row) * row_bytes;
  const std::int64_t steps = step_count(matrix.layout.format, depth);
  // What comes after this panel's codes are the next panel's; its scales are asked for all along.
  const std::int64_t stride = matrix.panel_stride();
  const std::int64_t steps_ahead = std::min(steps, kCodesAhead / Groups::kStepBytes);
  const std::byte* ahead =
      matrix.panel(args.first_panel + panel) + steps_ahead * Groups::kStepBytes;
  const Groups groups(matrix, args.first_panel + panel);
  __m512 totals[NumRows] = {};
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + steps_ahead == steps) ahead += stride - steps * Groups::kStepBytes;
    prefetch_lines(ahead, Groups::kStepBytes / 64);
    prefetch_scales(groups, step, stride);
    ahead += Groups::kStepBytes;
    Sum sums[NumRows];
#pragma GCC unroll 12
    for (Sum& sum : sums) sum.clear();
    const auto add_line = [&](int line, __m512i words) __attribute__((always_inline)) {
#pragma GCC unroll 12
      for (std::size_t r = 0; r < NumRows; ++r) {
        sums[r].add(rows + r * row_bytes + step * kStepDepth * 2, line, words);
      }
      if (line % Sum::kLines != Sum::kLines - 1) return;
#pragma GCC unroll 12
      for (std::size_t r = 0; r < NumRows; ++r) {
        totals[r] = add_group(totals[r], sums[r], groups, step, line / Sum::kLines,
                              rows + r * row_bytes, depth);
        sums[r].clear();
      }
    };
    groups.codes(step, add_line);
  }
  float* out = args.out + first_row * args.out_stride + panel * kPanelColumns;
  for (std::size_t r = 0; r < NumRows; ++r, out += args.out_stride) {
    _mm512_store_ps(out, totals[r]);
  }
}

MOESAIC_END_TARGET

template <typename Groups, std::size_t... Indices>
constexpr auto multiply_functions(std::index_sequence<Indices...>) noexcept {
  return std::array{multiply_groups<Groups, Indices + 1>...};
}

/// All rows meet a panel before the next one is read.
template <typename Groups>
[[gnu::noinline]] void product_of_groups(const TileArgs& args) noexcept {
  constexpr auto kMaxRows = static_cast<std::int64_t>(Groups::Sum::kMaxRows);
  constexpr auto kMultiply = multiply_functions<Groups>(std::make_index_sequence<kMaxRows>());
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    for_each_row_block(args.num_rows, kMaxRows, [&](std::int64_t row, std::int64_t rows) {
      kMultiply[static_cast<std::size_t>(rows - 1)](args, panel, row);
    });
  }
  scale_columns(args);
}

template <typename Groups>
void group_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product_of_groups<Groups>(args);
}

/// `Decoder` brings weights into the form of other kernels, scaled.
template <typename Groups, typename Decoder>
constexpr GemmKernel group_kernel(Format format, const char* name) {
  return {.isa = Isa::avx512_bf16,
          .format = format,
          .name = name,
          .packed_row_bytes = Groups::Sum::row_bytes,
          .pack_rows = Groups::Sum::pack,
          .scratch_bytes = 0,
          .tile = group_tile<Groups>,
          .decode = decode_steps<Decoder>};
}

}  // namespace
}  // namespace moesaic
