#pragma once

#include "kernels/cuda/gating.cuh"
#include "kernels/cuda/mlp_arguments.h"

// Products in the tile order (docs/numerics.md) on CUDA cores: the bytes of every CPU. A warp has a
// panel and up to 8 rows; lane 16 h + c has column c, and of the steps of 32 k, which are
// independent until they are added up, those with s % 2 == h. The block shares the rows of x.
//
// A .cu file includes a decoder, then this.

namespace moesaic::cuda {

inline constexpr int kChunk = 256;  // k of x in shared memory at a time

/// The rows of x that belong to a tile, as floats.
struct alignas(16) SharedRows {
  float values[kPortableRows][kChunk];

  /// Rows of `depth` elements, zero beyond. All threads of the block.
  template <typename RowAt>
  __device__ __forceinline__ void load(const RowAt& row_at, int num_rows, int first_k, int depth) {
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * (kChunk / 8);
         i += kPortableWarps * 32) {
      const int row = i / (kChunk / 8);
      const int k = i % (kChunk / 8) * 8;
      uint4 eight = {0, 0, 0, 0};
      if (first_k + k < depth) eight = *reinterpret_cast<const uint4*>(row_at(row) + first_k + k);
      auto* const out = reinterpret_cast<float4*>(&values[row][k]);
      out[0] = {low_of_pair(eight.x), high_of_pair(eight.x), low_of_pair(eight.y),
                high_of_pair(eight.y)};
      out[1] = {low_of_pair(eight.z), high_of_pair(eight.z), low_of_pair(eight.w),
                high_of_pair(eight.w)};
    }
  }
};

/// Sums of one column and all rows of a tile.
struct TileSums {
  float sum[kPortableRows] = {};

  /// Adds the steps `step` and `step` + 1, or the first alone; `x` are the rows from that step on.
  __device__ __forceinline__ void add(const Decoder (&panel)[4], const float* x, int step,
                                      bool has_second, int num_rows) {
    const int half = static_cast<int>(threadIdx.x) / 16 % 2;
    std::uint32_t pairs[4][1][4] = {};
    if (half == 0 || has_second) {
#pragma unroll
      for (int j = 0; j < 4; ++j) decode<1>(panel[j], step + half, pairs[j]);
    }
#pragma unroll
    for (int row = 0; row < kPortableRows; ++row) {
      if (row >= num_rows) break;
      const auto* const four = reinterpret_cast<const float4*>(x + row * kChunk + half * 32);
      float even = 0;
      float odd = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4 v = four[i];
        const std::uint32_t first = pairs[i / 2][0][i % 2 * 2];
        const std::uint32_t second = pairs[i / 2][0][i % 2 * 2 + 1];
        even = tile_fma(v.x, low_of_pair(first), even);
        odd = tile_fma(v.y, high_of_pair(first), odd);
        even = tile_fma(v.z, low_of_pair(second), even);
        odd = tile_fma(v.w, high_of_pair(second), odd);
      }
      const float own = tile_add(even, odd);
      const float other = __shfl_xor_sync(0xffffffffU, own, 16);
      sum[row] = tile_add(sum[row], half == 0 ? own : other);
      if (has_second) sum[row] = tile_add(sum[row], half == 0 ? other : own);
    }
  }
};

/// Where a warp's panels of `Matrices` matrices [rows, depth] are.
template <int Matrices>
struct PanelPlace {
  const std::uint8_t* matrices[Matrices];
  int rows;
  int depth;
  PanelForm form;
};

/// The sums of a tile with the warp's panel of each matrix. All threads of the block.
template <int Matrices, typename RowAt>
__device__ __forceinline__ void sum_tile(const PanelPlace<Matrices>& place, const RowAt& row_at,
                                         int num_rows, TileSums (&sums)[Matrices]) {
  __shared__ SharedRows shared;
  const int panel =
      static_cast<int>(blockIdx.x) * kPortableWarps + static_cast<int>(threadIdx.x) / 32;
  const int steps = (place.depth + 31) / 32;
  for (int first = 0; first < place.depth; first += kChunk) {
    __syncthreads();
    shared.load(row_at, num_rows, first, place.depth);
    __syncthreads();
    if (panel * 16 >= place.rows) continue;
    const int end = min(steps, (first + kChunk) / 32);
    for (int step = first / 32; step < end; step += 2) {
#pragma unroll
      for (int m = 0; m < Matrices; ++m) {
        const std::uint8_t* const own =
            place.matrices[m] + panel * Decoder::panel_bytes(steps, place.form);
        const auto of = [&](int j) {
          return Decoder(own, steps, place.form, j, static_cast<int>(threadIdx.x) % 16);
        };
        sums[m].add({of(0), of(1), of(2), of(3)}, &shared.values[0][step * 32 - first], step,
                    step + 1 < end, num_rows);
      }
    }
  }
}

}  // namespace moesaic::cuda

/// inner = gating(x gate^T, x up^T). Grid: panels of the width by 4, tiles.
extern "C" __global__ void __launch_bounds__(128, 1)
    gate_up(const moesaic::cuda::MlpArguments arguments) {
  using namespace moesaic::cuda;
  const MlpTile tile = arguments.tiles[blockIdx.y];
  if (tile.num_rows == 0) return;
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const auto row_at = [&](int row) {
    return arguments.x + static_cast<std::int64_t>(arguments.row_indices[tile.first_row + row]) *
                             arguments.hidden;
  };
  TileSums sums[2];
  sum_tile<2>({{mlp.gate, mlp.up}, arguments.width, arguments.hidden, arguments.form}, row_at,
              tile.num_rows, sums);
  const int warp =
      static_cast<int>(blockIdx.x) * kPortableWarps + static_cast<int>(threadIdx.x) / 32;
  const int column = warp * 16 + static_cast<int>(threadIdx.x) % 16;
  if (column >= arguments.width || threadIdx.x % 32 >= 16) return;
#pragma unroll
  for (int row = 0; row < kPortableRows; ++row) {
    if (row >= tile.num_rows) break;
    const float gate = tile_multiply(sums[0].sum[row], mlp.gate_scale);
    const float up = tile_multiply(sums[1].sum[row], mlp.up_scale);
    arguments.inner[static_cast<std::int64_t>(tile.first_row + row) * arguments.width + column] =
        to_bf16(gated(arguments, gate, up));
  }
}

/// y = inner down^T. Grid: panels of hidden by 4, tiles.
extern "C" __global__ void __launch_bounds__(128, 1)
    down(const moesaic::cuda::MlpArguments arguments) {
  using namespace moesaic::cuda;
  const MlpTile tile = arguments.tiles[blockIdx.y];
  if (tile.num_rows == 0) return;
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const auto row_at = [&](int row) {
    return arguments.inner + static_cast<std::int64_t>(tile.first_row + row) * arguments.width;
  };
  TileSums sums[1];
  sum_tile<1>({{mlp.down}, arguments.hidden, arguments.width, arguments.form}, row_at,
              tile.num_rows, sums);
  const int warp =
      static_cast<int>(blockIdx.x) * kPortableWarps + static_cast<int>(threadIdx.x) / 32;
  const int column = warp * 16 + static_cast<int>(threadIdx.x) % 16;
  if (column >= arguments.hidden || threadIdx.x % 32 >= 16) return;
#pragma unroll
  for (int row = 0; row < kPortableRows; ++row) {
    if (row >= tile.num_rows) break;
    arguments.y[static_cast<std::int64_t>(tile.first_row + row) * arguments.hidden + column] =
        tile_multiply(sums[0].sum[row], mlp.down_scale);
  }
}
