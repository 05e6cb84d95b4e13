#pragma once

#include "kernels/cuda/gating.cuh"

// Products on tensor cores (mma.sync, sm_80 and later): weights become bf16 in registers. Four
// warps share a panel and take its steps of 32 k in turn; their sums are added in the order of
// the warps (docs/numerics.md). Lane 4 g + t has columns 2 g and 2 g + 1 of the panel, which are
// rows g and g + 8 of the mma, and k = 8 t to 8 t + 7 of a step, which are slots 2 t, 2 t + 1, 2 t
// + 8 and 2 t + 9 of two mma one after the other. So a lane reads 8 neighbouring bytes of codes, a
// warp 256, and of a row of x 16 bytes from shared memory.
//
// A .cu file includes a decoder, then this.

namespace moesaic::cuda {

inline constexpr int kRowPadding =
    32;  // elements: rows g and g + 1 in different halves of the banks
inline constexpr int kSumStride = 20;  // floats of a row of a panel's sums: no two in a bank

/// What a kernel has of each block: `Blocks` times 8 rows, a chunk of k in shared memory.
template <int Blocks, int Panels>
struct MmaTile {
  static constexpr int kRows = Blocks * 8;
  static constexpr int kThreads = Panels * kMmaSplits * 32;
  static constexpr int kDepth = Blocks == 1 ? 1024 : Blocks == 4 ? 512 : 128;  // of a chunk
  static constexpr int kStride = kDepth + kRowPadding;
  static constexpr int kSumBytes = 2 * Panels * kRows * kSumStride * 4;  // of two matrices
  static constexpr int kRowBytes = kRows * kStride * 2;
  static constexpr int kSharedBytes = kRowBytes > kSumBytes ? kRowBytes : kSumBytes;
  static_assert(kSharedBytes <= 48 * 1024, "more needs a launch that asks for it");
};

/// Brings a chunk of the rows to shared memory; zero where there are none. All threads of the
/// block.
template <typename Tile, typename RowAt>
__device__ __forceinline__ void load_rows(std::uint16_t* shared, const RowAt& row_at, int num_rows,
                                          int first_k, int depth) {
  constexpr int kPieces = Tile::kDepth / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kPieces; i += Tile::kThreads) {
    const int row = i / kPieces;
    const int k = first_k + i % kPieces * 8;
    if (k >= (depth + 31) / 32 * 32) continue;
    std::uint16_t* const to = shared + row * Tile::kStride + i % kPieces * 8;
    if (row < num_rows && k < depth) {
      copy_16_async(to, row_at(row) + k);
    } else {
      *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }
  }
  wait_for_copies();
}

/// Sums of the columns of a lane: [blocks of 8 rows][columns 2 g, 2 g + 1][rows 2 t, 2 t + 1].
template <int Blocks>
struct MmaSums {
  float sum[Blocks][4] = {};

  __device__ __forceinline__ void add(const Decoder& panel, const std::uint16_t* x, int stride,
                                      int step) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    std::uint32_t pairs[2][4];
    panel.decode<2>(step, t, 2 * g, pairs);
    const std::uint32_t first[4] = {pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]};
    const std::uint32_t second[4] = {pairs[0][2], pairs[1][2], pairs[0][3], pairs[1][3]};
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
      const uint4 row = *reinterpret_cast<const uint4*>(x + (block * 8 + g) * stride + t * 8);
      mma_bf16(sum[block], first, row.x, row.y);
      mma_bf16(sum[block], second, row.z, row.w);
    }
  }

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

/// Matrices [rows, depth] of which a block has the same panels.
template <int Matrices>
struct MatrixPlace {
  const std::uint8_t* panels[Matrices];
  int rows;
  int depth;
  PanelForm form;
};

/// Calls store(row, column, sums of each matrix) for all of a tile. All threads of the block.
template <int Blocks, int Panels, int Matrices, typename RowAt, typename Store>
__device__ __forceinline__ void multiply_tile(const MatrixPlace<Matrices>& place,
                                              const RowAt& row_at, int num_rows,
                                              const Store& store) {
  using Tile = MmaTile<Blocks, Panels>;
  __shared__ __align__(16) std::uint8_t memory[Tile::kSharedBytes];
  auto* const x = reinterpret_cast<std::uint16_t*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int split = warp % kMmaSplits;
  const int panel = static_cast<int>(blockIdx.x) * Panels + warp / kMmaSplits;
  const int steps = (place.depth + 31) / 32;
  const bool has_panel = panel * 16 < place.rows;
  MmaSums<Blocks> sums[Matrices];
  for (int first = 0; first < place.depth; first += Tile::kDepth) {
    __syncthreads();
    load_rows<Tile>(x, row_at, num_rows, first, place.depth);
    __syncthreads();
    if (!has_panel) continue;
    const int end = min(steps, (first + Tile::kDepth) / 32);
#pragma unroll(Blocks == 1 ? 4 : 1)
    for (int step = first / 32 + split; step < end; step += kMmaSplits) {
#pragma unroll
      for (int m = 0; m < Matrices; ++m) {
        const Decoder decoder(place.panels[m] + panel * Decoder::panel_bytes(steps, place.form),
                              steps, place.form);
        sums[m].add(decoder, x + step * 32 - first, Tile::kStride, step);
      }
    }
  }
  auto* const joined = reinterpret_cast<float*>(memory);
  constexpr int kPanelSums = Tile::kRows * kSumStride;
  for (int turn = 0; turn < kMmaSplits; ++turn) {
    __syncthreads();
    if (turn != split || !has_panel) continue;
#pragma unroll
    for (int m = 0; m < Matrices; ++m) {
      sums[m].join(joined + (m * Panels + warp / kMmaSplits) * kPanelSums, turn == 0);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * Panels * 16; i += Tile::kThreads) {
    const int row = i / (Panels * 16);
    const int column = i % (Panels * 16);
    if (static_cast<int>(blockIdx.x) * Panels * 16 + column >= place.rows) continue;
    float results[Matrices];
#pragma unroll
    for (int m = 0; m < Matrices; ++m) {
      results[m] = joined[(m * Panels + column / 16) * kPanelSums + row * kSumStride + column % 16];
    }
    store(row, static_cast<int>(blockIdx.x) * Panels * 16 + column, results);
  }
}

/// inner = gating(x gate^T, x up^T). Grid: panels of the width by Panels, tiles.
template <int Blocks, int Panels>
__device__ __forceinline__ void multiply_gate_up(const MlpArguments& arguments) {
  const MlpTile tile = arguments.tiles[blockIdx.y];
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const auto row_at = [&](int row) {
    return arguments.x + static_cast<std::int64_t>(arguments.row_indices[tile.first_row + row]) *
                             arguments.hidden;
  };
  const auto store = [&](int row, int column, const float(&sums)[2]) {
    const float gate = __fmul_rn(sums[0], mlp.gate_scale);
    const float up = __fmul_rn(sums[1], mlp.up_scale);
    arguments.inner[static_cast<std::int64_t>(tile.first_row + row) * arguments.width + column] =
        to_bf16(gated(arguments, gate, up));
  };
  multiply_tile<Blocks, Panels, 2>(
      {{mlp.gate, mlp.up}, arguments.width, arguments.hidden, arguments.form}, row_at,
      tile.num_rows, store);
}

/// y = inner down^T. Grid: panels of hidden by Panels, tiles.
template <int Blocks, int Panels>
__device__ __forceinline__ void multiply_down(const MlpArguments& arguments) {
  const MlpTile tile = arguments.tiles[blockIdx.y];
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const auto row_at = [&](int row) {
    return arguments.inner + static_cast<std::int64_t>(tile.first_row + row) * arguments.width;
  };
  const auto store = [&](int row, int column, const float(&sums)[1]) {
    arguments.y[static_cast<std::int64_t>(tile.first_row + row) * arguments.hidden + column] =
        __fmul_rn(sums[0], mlp.down_scale);
  };
  multiply_tile<Blocks, Panels, 1>({{mlp.down}, arguments.hidden, arguments.width, arguments.form},
                                   row_at, tile.num_rows, store);
}

}  // namespace moesaic::cuda

// As kMmaShapes says.
#define MOESAIC_MMA_KERNELS(rows, panels)                           \
  extern "C" __global__ void __launch_bounds__(panels * 128, 1)     \
      gate_up_##rows(const moesaic::cuda::MlpArguments arguments) { \
    moesaic::cuda::multiply_gate_up<(rows) / 8, panels>(arguments); \
  }                                                                 \
  extern "C" __global__ void __launch_bounds__(panels * 128, 1)     \
      down_##rows(const moesaic::cuda::MlpArguments arguments) {    \
    moesaic::cuda::multiply_down<(rows) / 8, panels>(arguments);    \
  }
MOESAIC_MMA_KERNELS(8, 1)
MOESAIC_MMA_KERNELS(32, 2)
MOESAIC_MMA_KERNELS(128, 2)
#undef MOESAIC_MMA_KERNELS
