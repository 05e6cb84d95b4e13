#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/fp8_channel.h"

// How a decoder (kernels/cpu/avx512/decoders) becomes a kernel: a few rows are multiplied by lines
// as they are decoded, in registers; more rows by decoded steps in the L1 cache. Internal to each
// kernel.

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// Asks for all lines of `bytes` bytes.
inline void prefetch_bytes(const std::byte* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T1);
  }
}

/// Bytes by which codes are asked for before they are decoded.
constexpr std::int64_t kPrefetchBytes = 4096;

/// GemmKernel::decode.
template <typename Decoder>
void decode_steps(const StepRange& steps, std::byte* out) noexcept {
  Decoder decoder(*steps.matrix, steps.panel);
  const std::byte* codes = steps.matrix->panel(steps.panel);
  for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
    prefetch_bytes(codes + step * Decoder::kStepBytes + kPrefetchBytes, Decoder::kStepBytes);
    decoder.step(
        step, [out](int line, __m512i words)
                  __attribute__((always_inline)) { _mm512_store_si512(out + line * 64, words); });
    out += kTileBytes;
  }
}

/// Some rows times `Panels` panels over the whole depth. Rows::Sum is the state of one row and
/// panel: begin_step(), add(row, line, words), end_step(), result().
template <typename Decoder, typename Rows, std::size_t NumRows, std::size_t Panels>
[[gnu::always_inline]] inline void fused_panels(const TileArgs& args, std::int64_t panel) {
  const PackedMatrix& matrix = *args.matrix;
  const std::size_t row_bytes = Rows::row_bytes(matrix.depth);
  Decoder decoders[2] = {{matrix, args.first_panel + panel},
                         {matrix, args.first_panel + panel + (Panels > 1 ? 1 : 0)}};
  typename Rows::Sum sums[NumRows][Panels] = {};
  const std::byte* rows = args.packed_rows;
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  const std::int64_t stride = matrix.panel_stride();
  const std::byte* ahead = matrix.panel(args.first_panel + panel) + kPrefetchBytes;
  std::int64_t steps_left = steps - kPrefetchBytes / Decoder::kStepBytes;
  for (std::int64_t step = 0; step < steps; ++step, rows += Rows::kStepBytes) {
    if (steps_left-- == 0) {  // what is asked for from here on are the panels after these
      ahead += static_cast<std::int64_t>(Panels) * stride - steps * Decoder::kStepBytes;
    }
#pragma GCC unroll 2
    for (std::size_t p = 0; p < Panels; ++p) {
      prefetch_bytes(ahead + static_cast<std::int64_t>(p) * stride, Decoder::kStepBytes);
#pragma GCC unroll 12
      for (std::size_t r = 0; r < NumRows; ++r) sums[r][p].begin_step();
      decoders[p].step(
          step, [&](int line, __m512i words) __attribute__((always_inline)) {
#pragma GCC unroll 12
            for (std::size_t r = 0; r < NumRows; ++r) {
              sums[r][p].add(rows + r * row_bytes, line, words);
            }
          });
#pragma GCC unroll 12
      for (std::size_t r = 0; r < NumRows; ++r) sums[r][p].end_step();
    }
    ahead += Decoder::kStepBytes;
  }
  for (std::size_t r = 0; r < NumRows; ++r) {
    for (std::size_t p = 0; p < Panels; ++p) {
      _mm512_storeu_ps(args.out + static_cast<std::int64_t>(r) * args.out_stride +
                           (panel + static_cast<std::int64_t>(p)) * kPanelColumns,
                       sums[r][p].result());
    }
  }
}

/// Few rows take two panels at a time, whose sums do not wait for each other.
template <typename Decoder, typename Rows, std::size_t NumRows>
[[gnu::noinline]] void fused(const TileArgs& args) noexcept {
  constexpr std::int64_t kPanels = NumRows <= 4 ? 2 : 1;
  std::int64_t panel = 0;
  for (; panel + kPanels <= args.num_panels; panel += kPanels) {
    fused_panels<Decoder, Rows, NumRows, kPanels>(args, panel);
  }
  if (panel < args.num_panels) fused_panels<Decoder, Rows, NumRows, 1>(args, panel);
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

END_TARGET

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

}  // namespace
}  // namespace moesaic
