#pragma once

#include <cstdint>

// What the host gives to the kernels of kernels/cuda, which include this file too. Addresses are
// those of device memory; kernels take MlpArguments as their one parameter.

namespace moesaic::cuda {

/// One gated MLP as it lies in device memory: packed panels, the scales of whole matrices.
struct MlpMatrices {
  const std::uint8_t* gate;
  const std::uint8_t* up;
  const std::uint8_t* down;
  float gate_scale;
  float up_scale;
  float down_scale;
  float unused;
};

/// Rows [first_row, first_row + num_rows) of the results, which one block computes with one MLP;
/// without rows it stands in a list that is longer than there are tiles.
struct MlpTile {
  std::int32_t mlp;
  std::int32_t first_row;
  std::int32_t num_rows;
};

/// What a layout leaves open: k that share a scale are 32 << group_shift.
struct PanelForm {
  std::int32_t group_shift;
  std::int32_t wide_scales;  // int4_group: not 0 where they are
};

struct MlpArguments {
  const MlpMatrices* mlps;
  const MlpTile* tiles;             // [grid.y]
  const std::int32_t* row_indices;  // [rows] which row of x each row of the results is for
  const std::uint16_t* x;           // [inputs, hidden] bf16
  std::uint16_t* inner;             // [rows, width] bf16: the gated activations
  float* y;                         // [rows, hidden]
  // block_scaled: what gate_up reads at x, and down at inner, are records (nvfp4_rows.h), and these
  const float* row_scales;  // [inputs] or [rows] those of the rows
  std::int32_t hidden;      // a multiple of 8, as is width
  std::int32_t width;
  float limit;  // Gating (kernels/vector_kernels.h)
  float alpha;
  float offset;
  PanelForm form;
  std::int32_t unused;
};

/// Warps of a block of the portable kernels; each has a panel.
inline constexpr int kPortableWarps = 4;
inline constexpr int kPortableRows = 8;  // of a tile, at most

/// Two of the kernels of tensor cores: "gate_up_<rows>" and "down_<rows>".
struct TileShape {
  int rows = 0;  // of a tile, at most: a multiple of 8
  int threads = 0;
  int gate_up_panels = 0;  // of a block
  int down_panels = 0;
};

/// mma: an element is the sum of four, step s being of sum s / (2 * ceil(steps / 8)).
inline constexpr int kMmaSums = 4;
inline constexpr int kColumnWarps = 4;  // of a block, with more than 8 rows
inline constexpr TileShape kMmaShapes[] = {
    {8, 128, 1, 2},
    {32, 32 * kColumnWarps, kColumnWarps, 2 * kColumnWarps},
    {128, 64 * kColumnWarps, kColumnWarps, 2 * kColumnWarps}};

/// block_scaled: warps that share a panel; warp w has the steps s with s % 4 == w.
inline constexpr int kScaledSplits = 4;
inline constexpr TileShape kScaledShapes[] = {{8, 128, 1, 1}, {32, 256, 2, 2}, {128, 256, 2, 2}};

}  // namespace moesaic::cuda
