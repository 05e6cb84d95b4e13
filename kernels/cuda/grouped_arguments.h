#pragma once

#include <cstdint>

#include "kernels/cuda/mlp_arguments.h"

// Products of groups of rows in nvfp4 by a library (grouped_product.h), each group with a matrix of
// its own: how their operands lie in a GPU's memory, and what the host gives to the kernels of
// kernels/cuda/grouped that put them there, which include this file too.
//
// A row of codes is e2m1, two a byte, the lower k in the low half. Scales are e4m3, one for 16 k,
// in blocks of 128 rows and 64 k (cuBLAS: "128x4"): that of row r and group of 16 k g stands at
//
//   (r / 128 * (depth / 64) + g / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + g % 4
//
// Rows of a group stand one after the other as they do in the pass, but their scales begin with a
// block: at a *padded* row, a multiple of 128. What stands between is anything.

namespace moesaic::cuda {

inline constexpr int kGroupSizes = 128;  // hidden and width are multiples of it
inline constexpr int kScaleBlockRows = 128;
inline constexpr int kScaleBlockBytes = 512;

/// Rows of a group at most: more are several.
inline constexpr int kMostGroupRows = 1 << 17;

/// Of d [rows, outputs] = a [rows, depth] b [outputs, depth]^T.
struct GroupShape {
  std::int32_t rows;
  std::int32_t outputs;
  std::int32_t depth;
};

/// What each group multiplies, [groups] each.
struct GroupLists {
  GroupShape* shapes;
  const std::uint8_t** a;  // codes
  const std::uint8_t** a_scales;
  const std::uint8_t** b;
  const std::uint8_t** b_scales;
  float** d;
};

/// Where a row of a pass belongs.
struct RowPlace {
  std::int32_t padded_row;
  std::int32_t mlp;
};

/// The memory of rows in nvfp4, of a product's input.
struct GroupedRows {
  std::uint8_t* codes;   // [rows, depth / 2]
  std::uint8_t* scales;  // [padded rows, depth / 16]
  float* row_scales;     // [rows] powers of two, NaN for a row that is not finite
};

/// Of place_groups: the groups of both products, a block each.
struct PlaceArguments {
  const MlpTile* tiles;     // [grid.x] the groups, in the order of padded rows
  const MlpMatrices* mlps;  // whose matrices lie as said above
  RowPlace* places;         // [rows]
  GroupLists gate_up;       // [2 * grid.x]: gate's and up's of each
  GroupLists down;          // [grid.x]
  GroupedRows rows;         // of either product
  float* sums;              // [rows, 2, width]: gate's, up's
  float* y;                 // [rows, hidden]
  std::int32_t hidden;
  std::int32_t width;
};

/// Of quantize_groups, a row of the pass a block.
struct GroupRowArguments {
  const std::uint16_t* from;        // [inputs, depth] bf16
  const std::int32_t* row_indices;  // null, or [grid.x] the input of each row
  const std::int32_t* count;        // null, or [1] how many rows there are, not more than grid.x
  const RowPlace* places;           // [grid.x]
  GroupedRows to;
  std::int32_t depth;
  float input_scale;  // as RoundArguments has it
};

/// Of gate_groups and scale_groups, a row of the pass a block.
struct GroupSumArguments {
  const std::int32_t* count;  // null, or [1] how many rows there are, not more than grid.x
  const RowPlace* places;     // [grid.x]
  const MlpMatrices* mlps;
  const float* row_scales;  // [grid.x] of the product's input
  float* sums;              // [grid.x, 2, width], or of scale_groups [grid.x, width] in and out
  std::uint16_t* inner;     // of gate_groups: [grid.x, width] bf16
  std::int32_t width;
  float limit;  // Gating (kernels/vector_kernels.h)
  float alpha;
  float offset;
};

/// Of arrange_matrix, a panel a block: a packed matrix becomes codes [rows, depth / 2] and, behind
/// them, scales, which take as many bytes.
struct ArrangeArguments {
  const std::uint8_t* panels;
  std::uint8_t* to;
  std::int32_t rows;
  std::int32_t depth;
};

}  // namespace moesaic::cuda
