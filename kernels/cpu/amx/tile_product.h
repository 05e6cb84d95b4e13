#pragma once

#include <algorithm>

#include "kernels/cpu/amx/tile_block.h"
#include "kernels/gemm_kernel.h"

// How a whole product becomes blocks of tiles (why these shapes: docs/performance.md). Packed rows
// are blocks of 16 rows, the last with fewer: [steps][rows of the block][64 bytes].

namespace moesaic {
namespace {

/// Some panels of raw weights, at some step, and the sums they go to.
struct PanelPair {
  const std::byte* panels;
  std::size_t panel_stride;
  std::int64_t count;  // 1 or 2
  std::int64_t first_step;
  std::int64_t steps;
  std::int64_t prefetch_steps;
  std::byte* out;
};

/// Nothing to do between the steps of a block.
struct Nothing {
  void operator()() const {}
};

/// The packed rows of a product, and what all its blocks have in common.
template <typename Product>
class TileProduct {
 public:
  TileProduct(const TileArgs& args, std::size_t row_bytes)
      : rows_(args.packed_rows),
        num_rows_(args.num_rows),
        block_bytes_(row_bytes * kRowBlock),
        out_stride_(static_cast<std::size_t>(args.out_stride) * sizeof(float)) {}

  /// At most two tiles of rows: their sums may stay in registers from call to call.
  [[nodiscard]] bool is_small() const { return num_rows_ <= 2 * kRowBlock; }

  template <typename Meanwhile>
  void run_small(const PanelPair& pair, Before before, After after, Meanwhile& meanwhile) {
    const TileBlock block = block_at(pair, 0);
    const int first = static_cast<int>(std::min(num_rows_, kRowBlock));
    const int second = static_cast<int>(num_rows_) - first;
    set_rows(first, second);
    run(block, {second > 0 ? 2 : 1, pair.count}, before, after, meanwhile);
  }

  /// All rows. Three tiles of rows at a time if `triples`, else two; what is left over in the end
  /// has its tiles trimmed.
  template <typename Meanwhile>
  void run_all(const PanelPair& pair, bool triples, bool resume, Meanwhile& meanwhile) {
    const Before before = resume ? Before::load : Before::zero;
    const std::int64_t whole = num_rows_ / kRowBlock;
    const int rest = static_cast<int>(num_rows_ % kRowBlock);
    std::int64_t tile = 0;
    for (; triples && pair.count == 2 && tile + 3 <= whole; tile += 3) {
      set_rows(16, 16);
      run_three_by_two<Product>(block_at(pair, tile), before, meanwhile);
    }
    for (; tile + 2 <= whole; tile += 2) {
      set_rows(16, 16);
      run(block_at(pair, tile), {2, pair.count}, before, After::store, meanwhile);
    }
    const int left = tile < whole ? 16 : 0;
    if (left + rest == 0) return;
    set_rows(left > 0 ? left : rest, left > 0 ? rest : 0);
    run(block_at(pair, tile), {left > 0 && rest > 0 ? 2 : 1, pair.count}, before, After::store,
        meanwhile);
  }

  ~TileProduct() { release_tiles(); }
  TileProduct(const TileProduct&) = delete;
  TileProduct& operator=(const TileProduct&) = delete;

 private:
  struct Shape {
    int row_tiles;
    std::int64_t panels;
  };

  template <typename Meanwhile>
  static void run(const TileBlock& block, Shape shape, Before before, After after,
                  Meanwhile& meanwhile) {
    if (shape.row_tiles == 2) {
      shape.panels == 2 ? run_tile_block<Product, 2, 2>(block, before, after, meanwhile)
                        : run_tile_block<Product, 2, 1>(block, before, after, meanwhile);
    } else {
      shape.panels == 2 ? run_tile_block<Product, 1, 2>(block, before, after, meanwhile)
                        : run_tile_block<Product, 1, 1>(block, before, after, meanwhile);
    }
  }

  /// Block of up to three row tiles from `tile` on. Weights are asked for by the first block alone.
  [[nodiscard]] TileBlock block_at(const PanelPair& pair, std::int64_t tile) const {
    TileBlock block{.rows = {},
                    .row_step = {},
                    .panels = pair.panels,
                    .panel_stride = pair.panel_stride,
                    .steps = pair.steps,
                    .prefetch_steps = tile == 0 ? pair.prefetch_steps : 0,
                    .out = pair.out + static_cast<std::size_t>(tile * kRowBlock) * out_stride_,
                    .out_stride = out_stride_};
    for (std::int64_t i = 0; i < 3 && (tile + i) * kRowBlock < num_rows_; ++i) {
      const std::int64_t rows = std::min(kRowBlock, num_rows_ - (tile + i) * kRowBlock);
      block.row_step[i] = static_cast<std::size_t>(rows) * 64;
      block.rows[i] = rows_ + static_cast<std::size_t>(tile + i) * block_bytes_ +
                      static_cast<std::size_t>(pair.first_step) * block.row_step[i];
    }
    return block;
  }

  /// LDTILECFG takes longer than ten products: only where something changes.
  void set_rows(int rows0, int rows1) {
    if (rows0 == rows0_ && rows1 == rows1_) return;
    configure(rows0, rows1);
    rows0_ = rows0;
    rows1_ = rows1;
  }

  const std::byte* rows_;
  std::int64_t num_rows_;
  std::size_t block_bytes_;
  std::size_t out_stride_;
  int rows0_ = -1;
  int rows1_ = -1;
};

/// Weights that are raw. Few rows: the whole depth at once, weights being asked for shortly before
/// they are used. More rows: a chunk of weights stays in the L1 cache while all rows pass, and the
/// rows' part of some chunks stays in the L2 cache while all panels pass.
template <typename Product>
void run_raw_tiles(const TileArgs& args, std::size_t row_bytes) {
  constexpr std::int64_t kChunkSteps = 8;
  constexpr std::int64_t kOuterSteps = 32;
  const PackedMatrix& matrix = *args.matrix;
  const auto stride = static_cast<std::size_t>(matrix.panel_stride());
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  TileProduct<Product> product(args, row_bytes);
  Nothing nothing;
  const auto pair_at = [&](std::int64_t panel, std::int64_t first, std::int64_t count) {
    return PanelPair{.panels = matrix.panel(args.first_panel + panel) + first * kTileBytes,
                     .panel_stride = stride,
                     .count = std::min<std::int64_t>(2, args.num_panels - panel),
                     .first_step = first,
                     .steps = count,
                     .prefetch_steps = product.is_small() ? 2 : kChunkSteps,
                     .out = reinterpret_cast<std::byte*>(args.out + panel * kPanelColumns)};
  };
  if (product.is_small()) {
    for (std::int64_t panel = 0; panel < args.num_panels; panel += 2) {
      product.run_small(pair_at(panel, 0, steps), args.resume ? Before::load : Before::zero,
                        After::store, nothing);
    }
    return;
  }
  for (std::int64_t outer = 0; outer < steps; outer += kOuterSteps) {
    const std::int64_t end = std::min(steps, outer + kOuterSteps);
    for (std::int64_t panel = 0; panel < args.num_panels; panel += 2) {
      for (std::int64_t first = outer; first < end; first += kChunkSteps) {
        product.run_all(pair_at(panel, first, std::min(kChunkSteps, end - first)), false,
                        args.resume || first > 0, nothing);
      }
    }
  }
}

}  // namespace
}  // namespace moesaic
