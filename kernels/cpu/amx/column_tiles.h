#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/amx/decoded_tiles.h"
#include "kernels/cpu/avx512/turn_lines.h"

// Products of few rows with weights that are decoded by columns, where one look-up finds 32
// weights. A tile of 16 columns by 32 k is the first factor, the rows are the second one, in pairs
// of k, and sums come out transposed: sums of the same products in the same order as ever. Internal
// to each kernel.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// The rows of a product, [steps][16 pairs of k][rows], and where its sums go.
class ColumnRows {
 public:
  /// With more, tiles of rows take as long to load as is gained in decoding.
  static constexpr std::int64_t kMost = 8;

  /// Of `scratch`.
  static std::int64_t bytes(std::int64_t rows, std::int64_t steps) {
    return 2 * kTileBytes + rows * steps * 64;
  }

  ColumnRows(const TileArgs& args, std::int64_t steps, std::byte* scratch)
      : args_(args), sums_(scratch), pairs_(scratch + 2 * kTileBytes) {
    const std::int64_t step_bytes = 64 * args.num_rows;
    for (std::int64_t step = 0; step < steps; ++step) {
      turn(args.packed_rows + step * step_bytes, scratch + 2 * kTileBytes + step * step_bytes);
    }
  }

  [[nodiscard]] const std::byte* pairs() const { return pairs_; }
  /// Bytes from pair to pair.
  [[nodiscard]] std::size_t stride() const { return static_cast<std::size_t>(4 * args_.num_rows); }
  [[nodiscard]] std::byte* sums(std::int64_t panel) const { return sums_ + panel * kTileBytes; }

  /// Sums of a pair of panels are tiles 0 and 1, rows 4, weights 6 and 7.
  void configure_tiles() const {
    TileConfig config;
    for (const std::size_t tile : std::array<std::size_t, 5>{0, 1, 4, 6, 7}) {
      config.rows[tile] = 16;
      config.row_bytes[tile] = tile < 6 ? static_cast<std::uint16_t>(stride()) : 64;
    }
    load_config(config);
  }

  /// Brings the sums of a pair of panels to where they belong.
  void store_sums(std::int64_t panel, std::int64_t panels) const {
    for (std::int64_t p = 0; p < panels; ++p) {
      float* const out = args_.out + (panel + p) * kPanelColumns;
      turn_floats(
          sums(p), [&](std::int64_t row, __m512 columns) __attribute__((always_inline)) {
            if (row < args_.num_rows) _mm512_storeu_ps(out + row * args_.out_stride, columns);
          });
    }
  }

 private:
  /// A step: 16 pairs of each row become 16 times a pair of all rows.
  void turn(const std::byte* from, std::byte* to) const {
    const std::int64_t rows = args_.num_rows;
    alignas(64) std::byte lines[kTileBytes];
    std::memcpy(lines, from, static_cast<std::size_t>(64 * rows));
    const auto mask = static_cast<__mmask16>((1U << rows) - 1);
    turn_floats(
        lines, [=](std::int64_t pair, __m512 of_rows) __attribute__((always_inline)) {
          _mm512_mask_storeu_ps(to + pair * 4 * rows, mask, of_rows);
        });
  }

  const TileArgs& args_;
  std::byte* sums_;
  const std::byte* pairs_;
};

/// All rows by a pair of panels.
template <typename Weights>
void multiply_columns(const ColumnRows& rows, std::int64_t steps, Weights& weights) {
  zero_tile<0>();
  zero_tile<1>();
  const std::byte* pairs = rows.pairs();
  const std::size_t stride = rows.stride();
  for_each_step(
      weights, steps, [&](auto& cursor) __attribute__((always_inline)) {
        load_tile<6>(cursor.tile(0), 64);
        load_tile<4>(pairs, stride);
        Bf16Product::add<0, 6, 4>();
        cursor.template meanwhile<0>();
        load_tile<7>(cursor.tile(1), 64);
        Bf16Product::add<1, 7, 4>();
        cursor.template meanwhile<1>();
        pairs += 16 * stride;
      });
  store_tile<0>(rows.sums(0), 64);
  store_tile<1>(rows.sums(1), 64);
}

/// The product of args, if it is one of few rows that `scratch` (kPairRingBytes) has room for; else
/// false. Columns: a decoder of a panel with kStepBytes, scales_at(step) and store_step().
template <typename Columns>
bool multiply_by_columns(const TileArgs& args) {
  constexpr std::int64_t kColumnRing = kRingSteps * kPairStepBytes;
  const std::int64_t steps = step_count(args.matrix->layout.format, args.matrix->depth);
  if (args.num_rows > ColumnRows::kMost ||
      ColumnRows::bytes(args.num_rows, steps) > kPairRingBytes - kColumnRing) {
    return false;
  }
  const ColumnRows rows(args, steps, args.scratch + kColumnRing);
  using Pair = DecodedPair<Columns>;
  WeightsAhead<Pair> weights{Pair(args), PartOrder(args), args.scratch, kColumnRing};
  rows.configure_tiles();
  for (std::int64_t panel = 0; panel < args.num_panels; panel += 2) {
    multiply_columns(rows, steps, weights);
    rows.store_sums(panel, std::min<std::int64_t>(2, args.num_panels - panel));
  }
  release_tiles();
  scale_columns(args);
  return true;
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
