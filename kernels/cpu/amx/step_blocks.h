#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/amx/tile_block.h"
#include "kernels/cpu/avx512/target.h"
#include "kernels/format.h"

namespace moesaic {
namespace {

/// More steps of a block, of other rows by panels that lie in memory.
struct MoreSteps {
  const std::byte* rows[3];  // each tile of rows, at the first step
  const std::byte* weights;  // of the first panel
  std::size_t stride;        // from panel to panel
  std::int64_t steps;

  // A cursor for multiply_tiles.
  [[nodiscard]] const MoreSteps& cursor() const { return *this; }
  [[nodiscard]] static std::int64_t begin_run(std::int64_t run) { return run; }
  static void end_run(const MoreSteps& /*cursor*/, std::int64_t /*run*/) {}
  [[gnu::always_inline]] const std::byte* tile(std::size_t p) const { return weights + p * stride; }
  template <int P>
  [[gnu::always_inline]] void meanwhile() const {}
  [[gnu::always_inline]] void end_step() { weights += kTileBytes; }
};

/// Up to three tiles of rows that are multiplied, over some steps, by one or two panels that a
/// cursor leads through: a TileBlock whose weights need not lie in memory as they are stored.
struct StepBlock {
  const std::byte* rows[3];  // each tile of rows, at the first step
  std::size_t row_step[3];   // bytes of one step of it: 64 a row
  std::int64_t steps;
  std::byte* out;
  std::size_t out_stride;
  std::span<const MoreSteps> more{};  // with which the sums go on
};

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Where a tile of sums lies in the output.
[[gnu::always_inline]] inline std::byte* tile_at(const StepBlock& block, std::size_t row_tile,
                                                 std::size_t panel) {
  return block.out + row_tile * 16 * block.out_stride + panel * 64;
}

/// Tile 2 r + p has the sums of row tile r and panel p.
template <int RowTile, int Panels>
[[gnu::always_inline]] inline void begin_sums(const StepBlock& block, Before before) {
  constexpr int kSum = 2 * RowTile;
  if (before == Before::zero) {
    zero_tile<kSum>();
    if constexpr (Panels == 2) zero_tile<kSum + 1>();
  } else {
    load_tile<kSum>(tile_at(block, RowTile, 0), block.out_stride);
    if constexpr (Panels == 2) load_tile<kSum + 1>(tile_at(block, RowTile, 1), block.out_stride);
  }
}

template <int RowTile, int Panels>
[[gnu::always_inline]] inline void end_sums(const StepBlock& block) {
  constexpr int kSum = 2 * RowTile;
  store_tile<kSum>(tile_at(block, RowTile, 0), block.out_stride);
  if constexpr (Panels == 2) store_tile<kSum + 1>(tile_at(block, RowTile, 1), block.out_stride);
}

/// The steps of a block in runs, within which nothing changes but a cursor: a copy, which the
/// compiler may keep in registers, though tiles are loaded from memory all the time.
template <typename Weights, typename Step>
[[gnu::always_inline]] inline void for_each_step(Weights& weights, std::int64_t steps,
                                                 const Step& step) {
  while (steps > 0) {
    const std::int64_t run = weights.begin_run(steps);
    auto cursor = weights.cursor();
    for (std::int64_t i = 0; i < run; ++i) {
      step(cursor);
      cursor.end_step();
    }
    weights.end_run(cursor, run);
    steps -= run;
  }
}

/// One or two row tiles by one or two panels. Their loads hide behind the products of the other
/// tiles. A cursor's `tile(p)` is where panel p has this step, `meanwhile<p>()` what there is to do
/// between the products by it; of both panels, for what is done may be for a block of two.
template <typename Product, int RowTiles, int Panels, typename Weights>
void multiply_tiles(const StepBlock& block, Before before, Weights& weights) {
  static_assert(RowTiles <= 2 && Panels <= 2);
  begin_sums<0, Panels>(block, before);
  if constexpr (RowTiles == 2) begin_sums<1, Panels>(block, before);
  const std::byte* rows0 = block.rows[0];
  const std::byte* rows1 = block.rows[1];
  const auto step = [&](auto& cursor) __attribute__((always_inline)) {
    load_tile<6>(cursor.tile(0), 64);
    load_tile<4>(rows0, 64);
    Product::template add<0, 4, 6>();
    cursor.template meanwhile<0>();
    if constexpr (RowTiles == 2) {
      load_tile<5>(rows1, 64);
      Product::template add<2, 5, 6>();
      rows1 += block.row_step[1];
    }
    if constexpr (Panels == 2) {
      load_tile<7>(cursor.tile(1), 64);
      Product::template add<1, 4, 7>();
      if constexpr (RowTiles == 2) Product::template add<3, 5, 7>();
    }
    cursor.template meanwhile<1>();
    rows0 += block.row_step[0];
  };
  for_each_step(weights, block.steps, step);
  for (const MoreSteps& more : block.more) {
    rows0 = more.rows[0];
    rows1 = more.rows[1];
    for_each_step(more, more.steps, step);
  }
  end_sums<0, Panels>(block);
  if constexpr (RowTiles == 2) end_sums<1, Panels>(block);
}

/// Three whole row tiles by one or two panels: six sums, one tile of rows, one of weights; seven
/// loads for six products, fewer than any shape of two by two.
template <typename Product, int Panels, typename Weights>
void multiply_three_tiles(const StepBlock& block, Before before, Weights& weights) {
  begin_sums<0, Panels>(block, before);
  begin_sums<1, Panels>(block, before);
  begin_sums<2, Panels>(block, before);
  const std::byte* rows0 = block.rows[0];
  const std::byte* rows1 = block.rows[1];
  const std::byte* rows2 = block.rows[2];
  const auto step = [&](auto& cursor) __attribute__((always_inline)) {
    load_tile<7>(cursor.tile(0), 64);
    load_tile<6>(rows0, 64);
    Product::template add<0, 6, 7>();
    load_tile<6>(rows1, 64);
    Product::template add<2, 6, 7>();
    cursor.template meanwhile<0>();
    load_tile<6>(rows2, 64);
    Product::template add<4, 6, 7>();
    if constexpr (Panels == 2) {
      load_tile<7>(cursor.tile(1), 64);
      Product::template add<5, 6, 7>();
      load_tile<6>(rows1, 64);
      Product::template add<3, 6, 7>();
      cursor.template meanwhile<1>();
      load_tile<6>(rows0, 64);
      Product::template add<1, 6, 7>();
    } else {
      cursor.template meanwhile<1>();
    }
    rows0 += kTileBytes;
    rows1 += kTileBytes;
    rows2 += kTileBytes;
  };
  for_each_step(weights, block.steps, step);
  for (const MoreSteps& more : block.more) {
    rows0 = more.rows[0];
    rows1 = more.rows[1];
    rows2 = more.rows[2];
    for_each_step(more, more.steps, step);
  }
  end_sums<0, Panels>(block);
  end_sums<1, Panels>(block);
  end_sums<2, Panels>(block);
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
