#pragma once

#include "kernels/cuda/gating.cuh"
#include "kernels/cuda/mma/mma_product.cuh"

// Gated MLPs by the products of mma_product.cuh. A .cu file includes a decoder, then this.

namespace moesaic::cuda {

/// Whose panels, or pair of panels, are the warp's.
template <int Blocks>
__device__ __forceinline__ int own_place() {
  const int block = static_cast<int>(blockIdx.x);
  return Blocks == 1 ? block
                     : block * kColumnWarps + static_cast<int>(threadIdx.x) / 32 % kColumnWarps;
}

/// inner = gating(x gate^T, x up^T) of Blocks * 8 * RowWarps rows, or of up to 8 if Blocks is 1.
/// Grid: panels of the width by those of a block, tiles.
template <int Blocks, int RowWarps>
__device__ __forceinline__ void multiply_gate_up(const MlpArguments& arguments) {
  const MlpTile tile = arguments.tiles[blockIdx.y];
  if (tile.num_rows == 0) return;
  const MlpMatrices mlp = arguments.mlps[tile.mlp];
  const auto index_of = [&](int row) {
    return static_cast<std::int64_t>(arguments.row_indices[tile.first_row + row]);
  };
  const Product product{arguments.x, index_of, tile.num_rows, arguments.hidden, arguments.form};
  const auto inner = [&](int row, int column) {
    return arguments.inner + static_cast<std::int64_t>(tile.first_row + row) * arguments.width +
           column;
  };
  const auto activation = [&](float gate, float up) {
    return to_bf16(gated(arguments, __fmul_rn(gate, mlp.gate_scale), __fmul_rn(up, mlp.up_scale)));
  };
  const int panel = own_place<Blocks>();
  const bool has_panel = panel * 16 < arguments.width;
  const int own = has_panel ? panel : 0;
  Decoder panels[2] = {product.panel(mlp.gate, own), product.panel(mlp.up, own)};
  if constexpr (Blocks == 1) {
    multiply_few(product, panels, [&](int row, int column, float gate, float up) {
      if (panel * 16 + column >= arguments.width) return;
      *inner(row, panel * 16 + column) = activation(gate, up);
    });
  } else {
    multiply_many<Blocks, RowWarps>(
        product, panels, has_panel, [&](int row, int column, float2 gate, float2 up) {
          const int first = panel * 16 + column;
          if (first >= arguments.width) return;
          const std::uint32_t low = activation(gate.x, up.x);
          const std::uint32_t high = activation(gate.y, up.y);
          *reinterpret_cast<std::uint32_t*>(inner(row, first)) = low | high << 16;
        });
  }
}

/// y = inner down^T. Grid: panels of hidden by those of a block, tiles.
template <int Blocks, int RowWarps>
__device__ __forceinline__ void multiply_down(const MlpArguments& arguments) {
  const MlpTile tile = arguments.tiles[blockIdx.y];
  if (tile.num_rows == 0) return;
  const MlpMatrices mlp = arguments.mlps[tile.mlp];
  const auto index_of = [&](int row) { return static_cast<std::int64_t>(tile.first_row + row); };
  const Product product{arguments.inner, index_of, tile.num_rows, arguments.width, arguments.form};
  const auto y = [&](int row, int column) {
    return arguments.y + index_of(row) * arguments.hidden + column;
  };
  const int panel = 2 * own_place<Blocks>();
  const bool has_first = panel * 16 < arguments.hidden;
  const bool has_second = (panel + 1) * 16 < arguments.hidden;
  const int first = has_first ? panel : 0;
  const int second = has_second ? panel + 1 : first;
  Decoder panels[2] = {product.panel(mlp.down, first), product.panel(mlp.down, second)};
  if constexpr (Blocks == 1) {
    const auto store = [&](int row, int column, float sum) {
      if (column < arguments.hidden) *y(row, column) = __fmul_rn(sum, mlp.down_scale);
    };
    multiply_few(product, panels, [&](int row, int column, float of_first, float of_second) {
      store(row, first * 16 + column, of_first);
      if (has_second) store(row, second * 16 + column, of_second);
    });
  } else {
    const auto store = [&](int row, int column, float2 sums) {
      if (column >= arguments.hidden) return;
      *reinterpret_cast<float2*>(y(row, column)) = {__fmul_rn(sums.x, mlp.down_scale),
                                                    __fmul_rn(sums.y, mlp.down_scale)};
    };
    multiply_many<Blocks, RowWarps>(product, panels, has_first,
                                    [&](int row, int column, float2 of_first, float2 of_second) {
                                      store(row, first * 16 + column, of_first);
                                      if (has_second) {
                                        store(row, second * 16 + column, of_second);
                                      }
                                    });
  }
}

}  // namespace moesaic::cuda

static_assert(moesaic::cuda::kMmaSums == moesaic::cuda::kColumnWarps, "so many warps of few rows");
/// The kernels of a TileShape: Blocks of 8 rows a warp, `blocks` of a multiprocessor at least.
#define MOESAIC_MMA_KERNELS(rows, Blocks, RowWarps, blocks)                                   \
  extern "C" __global__ void __launch_bounds__(32 * moesaic::cuda::kColumnWarps * (RowWarps), \
                                               blocks)                                        \
      gate_up_##rows(const moesaic::cuda::MlpArguments arguments) {                           \
    moesaic::cuda::multiply_gate_up<Blocks, RowWarps>(arguments);                             \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(32 * moesaic::cuda::kColumnWarps * (RowWarps), \
                                               blocks)                                        \
      down_##rows(const moesaic::cuda::MlpArguments arguments) {                              \
    moesaic::cuda::multiply_down<Blocks, RowWarps>(arguments);                                \
  }

MOESAIC_MMA_KERNELS(8, 1, 1, 4)
MOESAIC_MMA_KERNELS(32, 4, 1, 3)
MOESAIC_MMA_KERNELS(128, 8, 2, 1)
