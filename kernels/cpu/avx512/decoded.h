#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/fp8_channel.h"

// How a decoder (kernels/cpu/avx512/decoders) becomes a kernel: a few rows are multiplied by lines
// as they are decoded, in registers; more rows by decoded steps in the L1 cache. Internal to each
// kernel.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Asks for the scales that the next panel has where this one has those of `step`: they lie behind
/// the codes, where nothing else asks for them in time.
template <typename Decoder>
[[gnu::always_inline]] inline void prefetch_scales(const Decoder& decoder, std::int64_t step,
                                                   std::int64_t panel_stride) {
  if constexpr (requires { decoder.scales_at(step); }) {
    prefetch_lines(decoder.scales_at(step) + panel_stride, 1);
  }
}

/// The 8 lines of half a step, to where they belong in the step's tile at `out`, 64-byte aligned.
template <typename Decoder>
[[gnu::always_inline]] inline void store_half_step(Decoder& decoder, std::int64_t step, int half,
                                                   std::byte* out) {
  decoder.half_step(
      step, half, [out](int line, __m512i words) __attribute__((always_inline)) {
        _mm512_store_si512(out + line * 64, words);
      });
}

/// Both halves.
template <typename Decoder>
[[gnu::always_inline]] inline void store_step(Decoder& decoder, std::int64_t step, std::byte* out) {
  store_half_step(decoder, step, 0, out);
  store_half_step(decoder, step, 1, out);
}

/// GemmKernel::decode.
template <typename Decoder>
void decode_steps(const StepRange& steps, std::byte* out) noexcept {
  Decoder decoder(*steps.matrix, steps.panel);
  const std::byte* ahead = steps.matrix->panel(steps.panel) + kPrefetchBytes;
  const std::int64_t stride = steps.matrix->panel_stride();
  for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
    prefetch_lines(ahead + step * Decoder::kStepBytes, Decoder::kStepBytes / 64);
    prefetch_scales(decoder, step, stride);
    store_step(decoder, step, out);
    out += kTileBytes;
  }
}

/// Whether a decoder has floats, column by column or in pairs of k, and whether rows take them.
template <typename Decoder>
concept HasFloats = Decoder::kHasFloats;
template <typename Decoder>
concept HasPairs = Decoder::kHasPairs;
template <typename Rows>
concept TakesFloats = Rows::kTakesFloats;

/// Some rows times one panel over the whole depth. Rows::Sum<NumRows> is the state of one row:
/// begin_step(), add(row, line, words), end_step(), result(); if the decoder has floats,
/// add_floats(row, line, even, odd); if it has pairs, add_pairs(row, line, low, high) and, before
/// end_step(), part_pairs(). Codes are asked for Rows::ahead_bytes(num_rows) before. Sums of
/// one row do not wait for each other long enough to pay for reading two panels at a time.
template <typename Decoder, typename Rows, std::size_t NumRows>
[[gnu::always_inline]] inline void fused_panel(const TileArgs& args, std::int64_t panel) {
  const PackedMatrix& matrix = *args.matrix;
  const std::size_t row_bytes = Rows::row_bytes(matrix.depth);
  Decoder decoder(matrix, args.first_panel + panel);
  typename Rows::template Sum<NumRows> sums[NumRows] = {};
  const std::byte* rows = args.packed_rows;
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  const std::int64_t stride = matrix.panel_stride();
  const std::byte* ahead = matrix.panel(args.first_panel + panel) + Rows::ahead_bytes(NumRows);
  std::int64_t steps_left = steps - Rows::ahead_bytes(NumRows) / Decoder::kStepBytes;
  for (std::int64_t step = 0; step < steps; ++step, rows += Rows::kStepBytes) {
    if (steps_left-- == 0) {  // what is asked for from here on is the next panel
      ahead += stride - steps * Decoder::kStepBytes;
    }
    prefetch_lines(ahead, Decoder::kStepBytes / 64);
    prefetch_scales(decoder, step, stride);
    ahead += Decoder::kStepBytes;
#pragma GCC unroll 12
    for (std::size_t r = 0; r < NumRows; ++r) sums[r].begin_step();
    if constexpr ((HasFloats<Decoder> || HasPairs<Decoder>)&&TakesFloats<Rows>) {
      const auto add_floats = [&](int line, __m512 first, __m512 second)
          __attribute__((always_inline)) {
#pragma GCC unroll 12
        for (std::size_t r = 0; r < NumRows; ++r) {
          if constexpr (HasPairs<Decoder>) {
            sums[r].add_pairs(rows + r * row_bytes, line, first, second);
          } else {
            sums[r].add_floats(rows + r * row_bytes, line, first, second);
          }
        }
      };
      decoder.float_step(step, add_floats);
      if constexpr (HasPairs<Decoder>) {
#pragma GCC unroll 12
        for (std::size_t r = 0; r < NumRows; ++r) sums[r].part_pairs();
      }
    } else {
      const auto add_words = [&](int line, __m512i words) __attribute__((always_inline)) {
#pragma GCC unroll 12
        for (std::size_t r = 0; r < NumRows; ++r) sums[r].add(rows + r * row_bytes, line, words);
      };
      decoder.half_step(step, 0, add_words);
      decoder.half_step(step, 1, add_words);
    }
#pragma GCC unroll 12
    for (std::size_t r = 0; r < NumRows; ++r) sums[r].end_step();
  }
  float* out = args.out + panel * kPanelColumns;
  for (std::size_t r = 0; r < NumRows; ++r, out += args.out_stride) {
    _mm512_storeu_ps(out, sums[r].result());
  }
}

template <typename Decoder, typename Rows, std::size_t NumRows>
[[gnu::noinline]] void fused(const TileArgs& args) noexcept {
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    fused_panel<Decoder, Rows, NumRows>(args, panel);
  }
}

/// Multiplies results by the scales of their columns.
inline void scale_columns(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const bool own_scales = matrix.layout.format == Format::fp8_channel;
  if (!own_scales && matrix.scale == 1) return;
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    __m512 scales = _mm512_set1_ps(matrix.scale);
    if (own_scales) {
      scales = _mm512_loadu_ps(matrix.panel(args.first_panel + panel) +
                               fp8_channel_format::scales_offset(matrix.depth));
    }
    float* out = args.out + panel * kPanelColumns;
    for (std::int64_t row = 0; row < args.num_rows; ++row, out += args.out_stride) {
      _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_loadu_ps(out), scales));
    }
  }
}

MOESAIC_END_TARGET

template <typename Decoder, typename Rows, std::size_t... Indices>
void call_fused(const TileArgs& args, std::index_sequence<Indices...>) noexcept {
  constexpr void (*kFunctions[])(const TileArgs&) noexcept = {fused<Decoder, Rows, Indices + 1>...};
  kFunctions[args.num_rows - 1](args);
}

/// The fused product; false if args.num_rows are more than MaxRows, or none.
template <typename Decoder, typename Rows, std::size_t MaxRows>
bool run_fused(const TileArgs& args) noexcept {
  if (args.num_rows < 1 || args.num_rows > static_cast<std::int64_t>(MaxRows)) return false;
  call_fused<Decoder, Rows>(args, std::make_index_sequence<MaxRows>());
  return true;
}

/// The fused product of any number of rows: all of them meet a panel before the next one is read.
template <typename Decoder, typename Rows, std::size_t MaxRows>
void run_fused_blocks(const TileArgs& args) noexcept {
  if (run_fused<Decoder, Rows, MaxRows>(args)) return;
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    for_each_row_block(args.num_rows, MaxRows, [&](std::int64_t row, std::int64_t rows) {
      TileArgs block = args;
      block.packed_rows += static_cast<std::size_t>(row) * Rows::row_bytes(args.matrix->depth);
      block.num_rows = rows;
      block.first_panel += panel;
      block.num_panels = 1;
      block.out += row * args.out_stride + panel * kPanelColumns;
      run_fused<Decoder, Rows, MaxRows>(block);
    });
  }
}

}  // namespace
}  // namespace moesaic
