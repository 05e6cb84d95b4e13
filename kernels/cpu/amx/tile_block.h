#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/between_products.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/format.h"

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)  // of what runs between products
namespace moesaic {
namespace {

/// One or two tiles of rows times one or two panels of raw weights.
struct TileBlock {
  std::size_t row_tile_stride;  // bytes from one tile of rows to the other
  std::size_t row_stride;       // from row to row of a tile
  std::size_t row_step;         // from one step of a tile to the next
  std::size_t panel_stride;
  std::int64_t prefetch_steps;  // how far ahead weights are asked for; 0: not at all
  std::byte* out;
  std::size_t out_stride;
};

/// Some of a block's steps, which follow each other in memory.
struct TileRun {
  const std::byte* rows;    // of the first tile, at the first step
  const std::byte* panels;  // the same
  std::int64_t steps;
};

/// What is in the sums before a block.
enum class Before { zero, load };

/// The rows of the tiles of one or two row tiles by two panels: sums are tiles 0 to 3, rows 4 and
/// 5, weights 6 and 7. With 16 rows each, every tile is whole, and any use of them is possible.
inline void configure(int rows0, int rows1) {
  TileConfig config;
  const int rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, 16, 16};
  for (int tile = 0; tile < 8; ++tile) {
    if (rows[tile] == 0) continue;
    config.rows[tile] = static_cast<std::uint8_t>(rows[tile]);
    config.row_bytes[tile] = 64;
  }
  load_config(config);
}

template <int Tile>
inline void begin_sum(Before before, const std::byte* out, std::size_t stride) {
  if (before == Before::zero) zero_tile<Tile>();
  if (before == Before::load) load_tile<Tile>(out, stride);
}

/// Where a tile of sums lies in the output.
inline std::byte* tile_at(const TileBlock& block, std::size_t row_tile, std::size_t panel) {
  return block.out + row_tile * 16 * block.out_stride + panel * 64;
}

template <int Panels>
[[gnu::always_inline]] inline void prefetch_step(const TileBlock& block, const std::byte* weights) {
  if (block.prefetch_steps == 0) return;
  for (std::size_t p = 0; p < Panels; ++p) {
    prefetch_lines(weights + block.prefetch_steps * kTileBytes + p * block.panel_stride, 16);
  }
}

template <typename Product, int RowTiles, int Panels, typename Between>
[[gnu::always_inline]] inline void multiply_run(const TileBlock& block, TileRun run,
                                                Between& between) {
  for (std::int64_t step = 0; step < run.steps; ++step) {
    prefetch_step<Panels>(block, run.panels);
    load_tile<6>(run.panels, 64);
    load_tile<4>(run.rows, block.row_stride);
    Product::template add<0, 4, 6>();
    between();
    if constexpr (RowTiles == 2) {
      load_tile<5>(run.rows + block.row_tile_stride, block.row_stride);
      Product::template add<2, 5, 6>();
      between();
    }
    if constexpr (Panels == 2) {
      load_tile<7>(run.panels + block.panel_stride, 64);
      Product::template add<1, 4, 7>();
      between();
      if constexpr (RowTiles == 2) {
        Product::template add<3, 5, 7>();
        between();
      }
    }
    run.rows += block.row_step;
    run.panels += kTileBytes;
  }
}

/// One or two row tiles by one or two panels, over the steps of all runs. Their loads hide behind
/// the products of the other tiles.
template <typename Product, int RowTiles, int Panels, typename Between>
void run_tile_block(const TileBlock& block, std::span<const TileRun> runs, Before before,
                    Between& between) {
  static_assert(RowTiles <= 2 && Panels <= 2);
  begin_sum<0>(before, tile_at(block, 0, 0), block.out_stride);
  if constexpr (Panels == 2) begin_sum<1>(before, tile_at(block, 0, 1), block.out_stride);
  if constexpr (RowTiles == 2) begin_sum<2>(before, tile_at(block, 1, 0), block.out_stride);
  if constexpr (RowTiles == 2 && Panels == 2) {
    begin_sum<3>(before, tile_at(block, 1, 1), block.out_stride);
  }
  for (const TileRun& run : runs) multiply_run<Product, RowTiles, Panels>(block, run, between);
  store_tile<0>(tile_at(block, 0, 0), block.out_stride);
  if constexpr (Panels == 2) store_tile<1>(tile_at(block, 0, 1), block.out_stride);
  if constexpr (RowTiles == 2) store_tile<2>(tile_at(block, 1, 0), block.out_stride);
  if constexpr (RowTiles == 2 && Panels == 2) {
    store_tile<3>(tile_at(block, 1, 1), block.out_stride);
  }
}
template <typename Product, int RowTiles, int Panels>
void run_tile_block(const TileBlock& block, std::span<const TileRun> runs, Before before) {
  NothingBetween nothing;
  run_tile_block<Product, RowTiles, Panels>(block, runs, before, nothing);
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_TARGET
