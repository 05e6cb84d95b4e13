#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/format.h"

namespace moesaic {
namespace {

/// Up to three tiles of rows times up to two panels of raw weights, over some steps.
struct TileBlock {
  const std::byte* rows[3];  // each tile of rows, at the first step
  std::size_t row_step[3];   // bytes of one step of it: 64 a row
  const std::byte* panels;   // at the first step
  std::size_t panel_stride;
  std::int64_t steps;
  std::int64_t prefetch_steps;  // how far ahead weights are asked for; 0: not at all
  std::byte* out;
  std::size_t out_stride;
};

/// What is in the sums before and after a block. Sums that are kept stay in their tile registers.
enum class Before { zero, load, keep };
enum class After { store, keep };

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

/// One or two row tiles by one or two panels. Their loads hide behind the products of the other
/// tiles. `meanwhile` is called once a step.
template <typename Product, int RowTiles, int Panels, typename Meanwhile>
void run_tile_block(const TileBlock& block, Before before, After after, Meanwhile& meanwhile) {
  static_assert(RowTiles <= 2 && Panels <= 2);
  begin_sum<0>(before, tile_at(block, 0, 0), block.out_stride);
  if constexpr (Panels == 2) begin_sum<1>(before, tile_at(block, 0, 1), block.out_stride);
  if constexpr (RowTiles == 2) begin_sum<2>(before, tile_at(block, 1, 0), block.out_stride);
  if constexpr (RowTiles == 2 && Panels == 2) {
    begin_sum<3>(before, tile_at(block, 1, 1), block.out_stride);
  }
  const std::byte* rows0 = block.rows[0];
  const std::byte* rows1 = block.rows[1];
  const std::byte* weights = block.panels;
  for (std::int64_t step = 0; step < block.steps; ++step, weights += kTileBytes) {
    prefetch_step<Panels>(block, weights);
    load_tile<6>(weights, 64);
    load_tile<4>(rows0, 64);
    Product::template add<0, 4, 6>();
    if constexpr (RowTiles == 2) {
      load_tile<5>(rows1, 64);
      Product::template add<2, 5, 6>();
      rows1 += block.row_step[1];
    }
    if constexpr (Panels == 2) {
      load_tile<7>(weights + block.panel_stride, 64);
      Product::template add<1, 4, 7>();
      if constexpr (RowTiles == 2) Product::template add<3, 5, 7>();
    }
    rows0 += block.row_step[0];
    meanwhile();
  }
  if (after == After::keep) return;
  store_tile<0>(tile_at(block, 0, 0), block.out_stride);
  if constexpr (Panels == 2) store_tile<1>(tile_at(block, 0, 1), block.out_stride);
  if constexpr (RowTiles == 2) store_tile<2>(tile_at(block, 1, 0), block.out_stride);
  if constexpr (RowTiles == 2 && Panels == 2) {
    store_tile<3>(tile_at(block, 1, 1), block.out_stride);
  }
}

/// Three whole row tiles by two panels: six sums, one tile of rows, one of weights; seven loads for
/// six products, fewer than any shape of two by two.
template <typename Product, typename Meanwhile>
void run_three_by_two(const TileBlock& block, Before before, Meanwhile& meanwhile) {
  begin_sum<0>(before, tile_at(block, 0, 0), block.out_stride);
  begin_sum<1>(before, tile_at(block, 0, 1), block.out_stride);
  begin_sum<2>(before, tile_at(block, 1, 0), block.out_stride);
  begin_sum<3>(before, tile_at(block, 1, 1), block.out_stride);
  begin_sum<4>(before, tile_at(block, 2, 0), block.out_stride);
  begin_sum<5>(before, tile_at(block, 2, 1), block.out_stride);
  const std::byte* rows[3] = {block.rows[0], block.rows[1], block.rows[2]};
  const std::byte* weights = block.panels;
  for (std::int64_t step = 0; step < block.steps; ++step, weights += kTileBytes) {
    load_tile<7>(weights, 64);
    load_tile<6>(rows[0], 64);
    Product::template add<0, 6, 7>();
    load_tile<6>(rows[1], 64);
    Product::template add<2, 6, 7>();
    load_tile<6>(rows[2], 64);
    Product::template add<4, 6, 7>();
    load_tile<7>(weights + block.panel_stride, 64);
    Product::template add<5, 6, 7>();
    load_tile<6>(rows[1], 64);
    Product::template add<3, 6, 7>();
    load_tile<6>(rows[0], 64);
    Product::template add<1, 6, 7>();
    for (int tile = 0; tile < 3; ++tile) rows[tile] += block.row_step[tile];
    meanwhile();
  }
  store_tile<0>(tile_at(block, 0, 0), block.out_stride);
  store_tile<1>(tile_at(block, 0, 1), block.out_stride);
  store_tile<2>(tile_at(block, 1, 0), block.out_stride);
  store_tile<3>(tile_at(block, 1, 1), block.out_stride);
  store_tile<4>(tile_at(block, 2, 0), block.out_stride);
  store_tile<5>(tile_at(block, 2, 1), block.out_stride);
}

}  // namespace
}  // namespace moesaic
