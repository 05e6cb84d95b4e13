#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/rounding.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// What a register block works on: some rows times some panels of raw weights (kTileBytes a step,
/// or twice that of f32), over some steps of the depth.
struct Block {
  const std::byte* rows;  // packed, at the first step
  std::size_t row_bytes;
  const std::byte* panels;  // at the first step
  std::size_t panel_stride;
  std::int64_t steps;
  bool resume;  // sums go on from what is in `out`; else from zero
  float* out;   // sums of int8 products are int32
  std::int64_t out_stride;
  std::byte* floats = nullptr;  // kFloatBytes for run_blocks(), or null
};

using BlockFunction = void (*)(const Block&) noexcept;

struct FloatPanels;

/// Register blocks of every size up to a largest: functions[(rows - 1) * max_panels + panels - 1].
struct BlockTable {
  std::int64_t max_rows;
  std::int64_t max_panels;
  const BlockFunction* functions;
  const FloatPanels* floats = nullptr;  // for weights in bf16 that many rows meet, or null

  [[nodiscard]] BlockFunction find(std::int64_t rows, std::int64_t panels) const noexcept {
    return functions[(rows - 1) * max_panels + panels - 1];
  }
};

/// Some steps of a panel in bf16, and those that become floats in the place of these afterwards,
/// which are asked for.
struct FloatSteps {
  const std::byte* tiles;
  const std::byte* ahead;
  std::int64_t count;
};
/// Blocks of weights that are floats by now; two lines, even k and odd k, for one of bf16. For many
/// rows: each weight becomes a float once, not once for each block of rows. Packed rows are floats.
struct FloatPanels {
  const BlockTable& blocks;
  void (*to_floats)(const FloatSteps& steps, std::byte* out) noexcept;
};
/// From so many rows on (measured: 32 lose 2 %, 64 gain 5, 512 gain 10).
inline constexpr std::int64_t kFloatRows = 48;
/// Panels and steps that are floats at the same time: they stay in the L1 cache.
inline constexpr std::int64_t kFloatPanelCount = 2;
inline constexpr std::int64_t kFloatSteps = 4;
inline constexpr std::int64_t kFloatBytes = kFloatPanelCount * kFloatSteps * 2 * kTileBytes;

/// call(first, count) for blocks of rows of nearly equal size, none larger than `max_rows`: 7 is 4
/// + 3 rather than 6 + 1.
template <typename Call>
[[gnu::always_inline]] inline void for_each_row_block(std::int64_t num_rows, std::int64_t max_rows,
                                                      const Call& call) {
  const std::int64_t blocks = divide_up(num_rows, max_rows);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = b * num_rows / blocks;
    call(first, (b + 1) * num_rows / blocks - first);
  }
}

/// Cuts `rows` times `panels` into register blocks. All rows meet a group of panels before the next
/// group is read: the group is to stay in the L2 cache.
inline void run_register_blocks(const Block& all, std::int64_t num_rows, std::int64_t num_panels,
                                const BlockTable& table) noexcept {
  for (std::int64_t panel = 0; panel < num_panels; panel += table.max_panels) {
    const std::int64_t panels = std::min(table.max_panels, num_panels - panel);
    for_each_row_block(num_rows, table.max_rows, [&](std::int64_t row, std::int64_t rows) {
      Block block = all;
      block.rows += static_cast<std::size_t>(row) * all.row_bytes;
      block.panels += static_cast<std::size_t>(panel) * all.panel_stride;
      block.out += row * all.out_stride + panel * kPanelColumns;
      table.find(rows, panels)(block);
    });
  }
}

/// The same, by way of floats.
inline void run_float_blocks(const Block& all, std::int64_t num_rows, std::int64_t num_panels,
                             const FloatPanels& floats) noexcept {
  constexpr std::int64_t kStride = kFloatSteps * 2 * kTileBytes;
  for (std::int64_t panel = 0; panel < num_panels; panel += kFloatPanelCount) {
    const std::int64_t panels = std::min(kFloatPanelCount, num_panels - panel);
    for (std::int64_t first = 0; first < all.steps; first += kFloatSteps) {
      const std::int64_t count = std::min(kFloatSteps, all.steps - first);
      for (std::int64_t p = 0; p < panels; ++p) {
        const std::byte* const begin =
            all.panels + static_cast<std::size_t>(panel + p) * all.panel_stride;
        const std::int64_t next = first + count;
        const std::byte* const ahead = next < all.steps
                                           ? begin + next * kTileBytes
                                           : begin + kFloatPanelCount * all.panel_stride;
        floats.to_floats({begin + first * kTileBytes, ahead, count}, all.floats + p * kStride);
      }
      run_register_blocks({.rows = all.rows + first * kStepDepth * std::int64_t{sizeof(float)},
                           .row_bytes = all.row_bytes,
                           .panels = all.floats,
                           .panel_stride = kStride,
                           .steps = count,
                           .resume = all.resume || first > 0,
                           .out = all.out + panel * kPanelColumns,
                           .out_stride = all.out_stride},
                          num_rows, panels, floats.blocks);
    }
  }
}

/// By way of floats where the table has them, the caller room for them, and rows are enough.
inline void run_blocks(const Block& all, std::int64_t num_rows, std::int64_t num_panels,
                       const BlockTable& table) noexcept {
  if (table.floats != nullptr && all.floats != nullptr && num_rows >= kFloatRows) {
    return run_float_blocks(all, num_rows, num_panels, *table.floats);
  }
  run_register_blocks(all, num_rows, num_panels, table);
}

/// Packed rows that stay in the L2 cache (512 KiB and more) while all panels of a call meet them.
inline constexpr std::int64_t kNearRowBytes = std::int64_t{512} << 10;
/// Steps that are a whole number of everything that is taken at a time.
inline constexpr std::int64_t kWholeSteps = 8;

/// call(first, count) for ranges of steps: a range of all rows stays in the L2 cache while all
/// panels meet it (256 rows of 4,096 floats: 0.80 of the multiply-adds' peak in place of 0.64).
template <typename Call>
inline void for_each_step_range(std::int64_t steps, std::int64_t num_rows,
                                std::size_t row_step_bytes, const Call& call) {
  const std::int64_t step_bytes =
      std::max<std::int64_t>(num_rows, 1) * static_cast<std::int64_t>(row_step_bytes);
  const std::int64_t most =
      std::max<std::int64_t>(kNearRowBytes / step_bytes / kWholeSteps, 1) * kWholeSteps;
  const std::int64_t ranges = divide_up(steps, most);
  const std::int64_t range = round_up(divide_up(steps, ranges), kWholeSteps);
  for (std::int64_t first = 0; first < steps; first += range) {
    call(first, std::min(range, steps - first));
  }
}

/// Bytes of one step.
struct StepBytes {
  std::size_t row;
  std::size_t panel;
};

/// run_blocks() range by range.
inline void run_ranges(const Block& all, std::int64_t num_rows, std::int64_t num_panels,
                       const StepBytes& bytes, const BlockTable& table) noexcept {
  for_each_step_range(all.steps, num_rows, bytes.row, [&](std::int64_t first, std::int64_t count) {
    Block range = all;
    range.rows += static_cast<std::size_t>(first) * bytes.row;
    range.panels += static_cast<std::size_t>(first) * bytes.panel;
    range.steps = count;
    range.resume = all.resume || first > 0;
    run_blocks(range, num_rows, num_panels, table);
  });
}

/// Packed rows of a kernel: bytes of one, and of one step of it.
struct PackedRows {
  std::size_t bytes;
  std::size_t step_bytes;
};

/// A whole product of raw weights.
inline void run_raw(const TileArgs& args, const PackedRows& rows,
                    const BlockTable& table) noexcept {
  const PackedMatrix& matrix = *args.matrix;
  run_ranges({.rows = args.packed_rows,
              .row_bytes = rows.bytes,
              .panels = matrix.panel(args.first_panel),
              .panel_stride = static_cast<std::size_t>(matrix.panel_stride()),
              .steps = step_count(matrix.layout.format, matrix.depth),
              .resume = args.resume,
              .out = args.out,
              .out_stride = args.out_stride,
              .floats = args.scratch},
             args.num_rows, args.num_panels, {rows.step_bytes, kTileBytes}, table);
}

/// Panels that are decoded together, and their steps: both fit the L1 cache beside some rows.
inline constexpr std::int64_t kDecodedPanels = 2;
inline constexpr std::int64_t kDecodedSteps = kWholeSteps;
inline constexpr std::int64_t kDecodedBytes = kDecodedPanels * kDecodedSteps * kTileBytes;

/// How a kernel multiplies by weights that it has to decode.
struct DecodedProduct {
  DecodeSteps decode;
  const BlockTable* blocks;
  PackedRows rows;
};

/// Decodes a few steps of two panels into `args.scratch`, multiplies all rows by them, and goes on
/// along the depth: each weight is decoded once for all rows.
inline void run_decoded(const TileArgs& args, const DecodedProduct& product) noexcept {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  const auto multiply = [&](std::int64_t panel, std::int64_t first, std::int64_t count) {
    const std::int64_t panels = std::min(kDecodedPanels, args.num_panels - panel);
    for (std::int64_t p = 0; p < panels; ++p) {
      product.decode({&matrix, args.first_panel + panel + p, first, count},
                     args.scratch + p * kDecodedSteps * kTileBytes);
    }
    run_blocks(
        {.rows = args.packed_rows + static_cast<std::size_t>(first) * product.rows.step_bytes,
         .row_bytes = product.rows.bytes,
         .panels = args.scratch,
         .panel_stride = kDecodedSteps * kTileBytes,
         .steps = count,
         .resume = first > 0,
         .out = args.out + panel * kPanelColumns,
         .out_stride = args.out_stride,
         .floats = args.scratch + kDecodedBytes},
        args.num_rows, panels, *product.blocks);
  };
  for_each_step_range(
      steps, args.num_rows, product.rows.step_bytes, [&](std::int64_t begin, std::int64_t count) {
        for (std::int64_t panel = 0; panel < args.num_panels; panel += kDecodedPanels) {
          for (std::int64_t first = begin; first < begin + count; first += kDecodedSteps) {
            multiply(panel, first, std::min(kDecodedSteps, begin + count - first));
          }
        }
      });
}

}  // namespace moesaic
