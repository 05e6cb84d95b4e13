#pragma once

#include "kernels/cuda/gating.cuh"
#include "kernels/cuda/mlp_arguments.h"

// Products of block_scaled: tiles, and how their sums become one. An mma has 16 columns of a panel
// and 8 rows. Four warps share a panel and take its steps in turn; their sums are added in the
// order of the warps (docs/numerics.md). Lane 4 g + t has the sums of columns 2 g and 2 g + 1 of
// the panel, which are rows g and g + 8 of the mma.
//
// A Tile says what a block has and how a step is added:
//
//   kRows, kPanels, kThreads     of a block
//   kStepDepth, kDepth, kUnroll  k of a step, and of a chunk in shared memory; steps at a time
//   kSharedBytes                 for the rows of a chunk, and for the sums
//   Sums                         TensorSums of its rows
//   load(memory, rows, first_k)            a chunk, zero where there are no rows; all threads
//   add(sums, panel, memory, turn, step)   a step of each matrix, the warp's `turn`-th of a chunk
//   scaled(sum, arguments, row)            a result, of row `row` of the input

namespace moesaic::cuda {

inline constexpr int kSumStride = 20;  // floats of a row of a panel's sums: no two in a bank

/// Shared memory for the rows of a chunk, and afterwards for the sums of two matrices.
constexpr int shared_bytes(int row_bytes, int panels, int rows) {
  const int sum_bytes = 2 * panels * rows * kSumStride * 4;
  return row_bytes > sum_bytes ? row_bytes : sum_bytes;
}

/// Sums of the columns of a lane: [blocks of 8 rows][columns 2 g, 2 g + 1][rows 2 t, 2 t + 1].
template <int Blocks>
struct TensorSums {
  float sum[Blocks][4] = {};

  /// Writes the sums of a panel [8 * Blocks][kSumStride] to shared memory, or adds them.
  __device__ __forceinline__ void join(float* panel, bool is_first) const {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        auto* const at =
            reinterpret_cast<float2*>(panel + (block * 8 + 2 * t + i) * kSumStride + 2 * g);
        const float2 before = is_first ? float2{} : *at;
        *at = is_first ? float2{sum[block][i], sum[block][2 + i]}
                       : float2{__fadd_rn(before.x, sum[block][i]),
                                __fadd_rn(before.y, sum[block][2 + i])};
      }
    }
  }
};

/// Matrices of so many rows of which a block has the same panels.
template <int Matrices>
struct MatrixPlace {
  const std::uint8_t* panels[Matrices];
  int rows;
  PanelForm form;
};

/// One panel of each.
template <int Matrices>
struct PanelPlace {
  const std::uint8_t* const (&panels)[Matrices];  // of each matrix the first
  int index;
  int depth;
  PanelForm form;
};

/// Rows of a product's input: row i of a tile is row index_of(i) of `x`.
template <typename IndexOf>
struct TileRows {
  const std::uint16_t* x;
  const IndexOf& index_of;
  int count;
  int depth;
};

/// Joins the warps' sums in shared memory and calls store(row, column, sums of each matrix) for the
/// columns below `columns`.
template <typename Tile, int Matrices, typename Store>
__device__ __forceinline__ void store_tile(float* joined,
                                           const typename Tile::Sums (&sums)[Matrices], int columns,
                                           int num_rows, const Store& store) {
  constexpr int kPanelSums = Tile::kRows * kSumStride;
  constexpr int kColumns = Tile::kPanels * 16;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const bool has_panel = first_column + warp / kScaledSplits * 16 < columns;
  for (int turn = 0; turn < kScaledSplits; ++turn) {
    __syncthreads();
    if (turn != warp % kScaledSplits || !has_panel) continue;
#pragma unroll
    for (int m = 0; m < Matrices; ++m) {
      sums[m].join(joined + (m * Tile::kPanels + warp / kScaledSplits) * kPanelSums, turn == 0);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kColumns; i += Tile::kThreads) {
    const int row = i / kColumns;
    const int column = i % kColumns;
    if (first_column + column >= columns) continue;
    float results[Matrices];
#pragma unroll
    for (int m = 0; m < Matrices; ++m) {
      results[m] =
          joined[(m * Tile::kPanels + column / 16) * kPanelSums + row * kSumStride + column % 16];
    }
    store(row, first_column + column, results);
  }
}

/// Calls store(row, column, sums of each matrix) for all of a tile. All threads of the block.
template <typename Tile, int Matrices, typename IndexOf, typename Store>
__device__ __forceinline__ void multiply_tile(const MatrixPlace<Matrices>& place,
                                              const TileRows<IndexOf>& rows, const Store& store) {
  __shared__ __align__(16) std::uint8_t memory[Tile::kSharedBytes];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int split = warp % kScaledSplits;
  const int panel = static_cast<int>(blockIdx.x) * Tile::kPanels + warp / kScaledSplits;
  const int steps = (rows.depth + Tile::kStepDepth - 1) / Tile::kStepDepth;
  const bool has_panel = panel * 16 < place.rows;
  const PanelPlace<Matrices> of_matrices{place.panels, panel, rows.depth, place.form};
  typename Tile::Sums sums[Matrices];
  for (int first = 0; first < rows.depth; first += Tile::kDepth) {
    __syncthreads();
    Tile::load(memory, rows, first);
    __syncthreads();
    if (!has_panel) continue;
    const int first_step = first / Tile::kStepDepth + split;
    const int end = min(steps, (first + Tile::kDepth) / Tile::kStepDepth);
    const int turns = (end - first_step + kScaledSplits - 1) / kScaledSplits;
#pragma unroll(Tile::kUnroll)
    for (int turn = 0; turn < turns; ++turn) {
      Tile::add(sums, of_matrices, memory, turn, first_step + turn * kScaledSplits);
    }
  }
  store_tile<Tile, Matrices>(reinterpret_cast<float*>(memory), sums, place.rows, rows.count, store);
}

/// inner = gating(x gate^T, x up^T). Grid: panels of the width by Tile::kPanels, tiles.
template <typename Tile>
__device__ __forceinline__ void multiply_gate_up(const MlpArguments& arguments) {
  const MlpTile tile = arguments.tiles[blockIdx.y];
  if (tile.num_rows == 0) return;
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const auto index_of = [&](int row) {
    return static_cast<std::int64_t>(arguments.row_indices[tile.first_row + row]);
  };
  const auto store = [&](int row, int column, const float(&sums)[2]) {
    const float gate = Tile::scaled(__fmul_rn(sums[0], mlp.gate_scale), arguments, index_of(row));
    const float up = Tile::scaled(__fmul_rn(sums[1], mlp.up_scale), arguments, index_of(row));
    arguments.inner[static_cast<std::int64_t>(tile.first_row + row) * arguments.width + column] =
        to_bf16(gated(arguments, gate, up));
  };
  multiply_tile<Tile, 2>({{mlp.gate, mlp.up}, arguments.width, arguments.form},
                         TileRows{arguments.x, index_of, tile.num_rows, arguments.hidden}, store);
}

/// y = inner down^T. Grid: panels of hidden by Tile::kPanels, tiles.
template <typename Tile>
__device__ __forceinline__ void multiply_down(const MlpArguments& arguments) {
  const MlpTile tile = arguments.tiles[blockIdx.y];
  if (tile.num_rows == 0) return;
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const auto index_of = [&](int row) { return static_cast<std::int64_t>(tile.first_row + row); };
  const auto store = [&](int row, int column, const float(&sums)[1]) {
    arguments.y[index_of(row) * arguments.hidden + column] =
        Tile::scaled(__fmul_rn(sums[0], mlp.down_scale), arguments, index_of(row));
  };
  multiply_tile<Tile, 1>({{mlp.down}, arguments.hidden, arguments.form},
                         TileRows{arguments.inner, index_of, tile.num_rows, arguments.width},
                         store);
}

}  // namespace moesaic::cuda

/// The kernels of Tile<rows / 8, panels>, for each of kScaledShapes.
#define MOESAIC_TENSOR_KERNELS_OF(Tile, rows, panels)               \
  extern "C" __global__ void __launch_bounds__((panels)*128, 1)     \
      gate_up_##rows(const moesaic::cuda::MlpArguments arguments) { \
    using namespace moesaic::cuda;                                  \
    multiply_gate_up<Tile<(rows) / 8, panels>>(arguments);          \
  }                                                                 \
  extern "C" __global__ void __launch_bounds__((panels)*128, 1)     \
      down_##rows(const moesaic::cuda::MlpArguments arguments) {    \
    using namespace moesaic::cuda;                                  \
    multiply_down<Tile<(rows) / 8, panels>>(arguments);             \
  }
#define MOESAIC_TENSOR_KERNELS(Tile)     \
  MOESAIC_TENSOR_KERNELS_OF(Tile, 8, 1)  \
  MOESAIC_TENSOR_KERNELS_OF(Tile, 32, 2) \
  MOESAIC_TENSOR_KERNELS_OF(Tile, 128, 2)
