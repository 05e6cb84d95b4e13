#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm_kernel.h"

namespace moesaic {

/// What a register block works on: some rows times some panels over the whole depth.
struct Block {
  const std::byte* rows;  // packed
  std::size_t row_bytes;
  const std::byte* panels;
  std::size_t panel_bytes;
  std::int64_t depth;
  float* out;
  std::int64_t out_stride;  // elements
};

using BlockFunction = void (*)(const Block&) noexcept;

/// Cuts a product into the register blocks of one kernel, functions[rows - 1][panels - 1]. All rows
/// meet a group of panels before the next group is read: the group is to stay in the L2 cache.
template <std::size_t MaxRows, std::size_t MaxPanels>
void run_blocks(const TileArgs& args, std::size_t row_bytes, std::size_t panel_bytes,
                const BlockFunction (&functions)[MaxRows][MaxPanels]) noexcept {
  const auto num_rows = static_cast<std::size_t>(args.num_rows);
  const auto num_panels = static_cast<std::size_t>(args.num_panels);
  const std::size_t row_blocks = (num_rows + MaxRows - 1) / MaxRows;
  for (std::size_t panel = 0; panel < num_panels; panel += MaxPanels) {
    const std::size_t panels = std::min(MaxPanels, num_panels - panel);
    for (std::size_t b = 0; b < row_blocks; ++b) {  // of nearly equal size: 7 is 4 + 3, not 6 + 1
      const std::size_t row = b * num_rows / row_blocks;
      const std::size_t rows = (b + 1) * num_rows / row_blocks - row;
      functions[rows - 1][panels - 1]({
          .rows = args.packed_rows + row * row_bytes,
          .row_bytes = row_bytes,
          .panels = args.panels + panel * panel_bytes,
          .panel_bytes = panel_bytes,
          .depth = args.depth,
          .out = args.out + static_cast<std::int64_t>(row) * args.out_stride +
                 static_cast<std::int64_t>(panel) * kPanelColumns,
          .out_stride = args.out_stride,
      });
    }
  }
}

}  // namespace moesaic
