#include "kernels/cuda/decoders/e2m1.cuh"
#include "kernels/cuda/gating.cuh"
#include "kernels/cuda/grouped_arguments.h"
#include "kernels/cuda/nvfp4_rounding.cuh"

// What stands around the products of a library (kernels/cuda/grouped_product.h): weights, rows and
// scales are put where it reads them, what it is given is listed, its sums are scaled and gated.

namespace moesaic::cuda {
namespace {

/// Of the scale of row `row` and group `group` of 16 k.
__device__ __forceinline__ std::int64_t scale_offset(int row, int group, int depth) {
  const std::int64_t block =
      static_cast<std::int64_t>(row / kScaleBlockRows) * (depth / 64) + group / 4;
  return block * kScaleBlockBytes + row % 32 * 16 + row % kScaleBlockRows / 32 * 4 + group % 4;
}

__device__ __forceinline__ int padded(int rows) {
  return (rows + kScaleBlockRows - 1) / kScaleBlockRows * kScaleBlockRows;
}

/// Padded rows of the groups before this block's. All threads of the block.
__device__ __forceinline__ int padded_rows_before(const MlpTile* tiles) {
  __shared__ int of_warps[kRowThreads / 32];
  int rows = 0;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(blockIdx.x); i += kRowThreads) {
    rows += padded(tiles[i].num_rows);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    rows += __shfl_xor_sync(0xffffffffU, rows, distance);
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = rows;
  __syncthreads();
  int sum = 0;
#pragma unroll
  for (const int warp : of_warps) sum += warp;
  return sum;
}

/// What one group multiplies, and where its results go.
struct Operands {
  const std::uint8_t* a;
  const std::uint8_t* a_scales;
  const std::uint8_t* b;  // codes, then scales
  float* d;
};

__device__ __forceinline__ void list(const GroupLists& lists, int group, const GroupShape& shape,
                                     const Operands& operands) {
  lists.shapes[group] = shape;
  lists.a[group] = operands.a;
  lists.a_scales[group] = operands.a_scales;
  lists.b[group] = operands.b;
  lists.b_scales[group] = operands.b + static_cast<std::int64_t>(shape.outputs) * shape.depth / 2;
  lists.d[group] = operands.d;
}

}  // namespace
}  // namespace moesaic::cuda

/// The groups of both products, and where each row belongs.
extern "C" __global__ void __launch_bounds__(128, 1)
    place_groups(const moesaic::cuda::PlaceArguments arguments) {
  using namespace moesaic::cuda;
  const int group = static_cast<int>(blockIdx.x);
  const MlpTile tile = arguments.tiles[group];
  const int first_padded = padded_rows_before(arguments.tiles);
  for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows; i += kRowThreads) {
    arguments.places[tile.first_row + i] = {first_padded + i, tile.mlp};
  }
  if (threadIdx.x != 0) return;
  const MlpMatrices& mlp = arguments.mlps[tile.mlp];
  const std::int64_t first = tile.first_row;
  const std::int64_t hidden = arguments.hidden;
  const std::int64_t width = arguments.width;
  const auto a = [&](std::int64_t depth) { return arguments.rows.codes + first * depth / 2; };
  const auto scales = [&](std::int64_t depth) {
    return arguments.rows.scales + first_padded * depth / 16;
  };
  const GroupShape inner{tile.num_rows, arguments.width, arguments.hidden};
  const GroupShape outer{tile.num_rows, arguments.hidden, arguments.width};
  float* const sums = arguments.sums + first * 2 * width;
  list(arguments.gate_up, 2 * group, inner, {a(hidden), scales(hidden), mlp.gate, sums});
  list(arguments.gate_up, 2 * group + 1, inner, {a(hidden), scales(hidden), mlp.up, sums + width});
  list(arguments.down, group, outer,
       {a(width), scales(width), mlp.down, arguments.y + first * hidden});
}

/// Rows as codes and scales, rounded as kernels/nvfp4_activations.h says.
extern "C" __global__ void __launch_bounds__(128, 1)
    quantize_groups(const moesaic::cuda::GroupRowArguments arguments) {
  using namespace moesaic::cuda;
  if (is_beyond(arguments.count)) return;
  const int depth = arguments.depth;
  const std::int64_t row = blockIdx.x;
  const std::int64_t input =
      arguments.row_indices != nullptr ? arguments.row_indices[blockIdx.x] : row;
  const std::uint16_t* const from = arguments.from + input * depth;
  std::uint8_t* const codes = arguments.to.codes + row * depth / 2;
  const int padded_row = arguments.places[blockIdx.x].padded_row;
  __shared__ WarpMaxima of_warps;
  const float row_scale = scale_of_row(from, depth, arguments.input_scale, of_warps);
  for (int k = static_cast<int>(threadIdx.x) * 16; k < depth; k += kRowThreads * 16) {
    uint2 words{};
    std::uint32_t code = 0;
    if (row_scale > 0) {
      Sixteen group;
      group.load(from, k, depth);
      const GroupScale scale(group.largest(), row_scale, arguments.input_scale != 0);
      code = scale.code;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        words.x |= scale.encode(group.value(i)) << (4 * i);
        words.y |= scale.encode(group.value(8 + i)) << (4 * i);
      }
    }
    *reinterpret_cast<uint2*>(codes + k / 2) = words;
    arguments.to.scales[scale_offset(padded_row, k / 16, depth)] = static_cast<std::uint8_t>(code);
  }
  if (threadIdx.x != 0) return;
  arguments.to.row_scales[blockIdx.x] = power_of_row(row_scale, arguments.input_scale);
}

/// inner = gating(gate, up) of their sums, each with its matrix's scale.
extern "C" __global__ void __launch_bounds__(128, 1)
    gate_groups(const moesaic::cuda::GroupSumArguments arguments) {
  using namespace moesaic::cuda;
  if (is_beyond(arguments.count)) return;
  const std::int64_t row = blockIdx.x;
  const int width = arguments.width;
  const MlpMatrices& mlp = arguments.mlps[arguments.places[blockIdx.x].mlp];
  const float power = arguments.row_scales[blockIdx.x];
  const float* const gates = arguments.sums + row * 2 * width;
  const float* const ups = gates + width;
  std::uint16_t* const inner = arguments.inner + row * width;
  for (int i = static_cast<int>(threadIdx.x) * 2; i < width; i += kRowThreads * 2) {
    const float2 gate = *reinterpret_cast<const float2*>(gates + i);
    const float2 up = *reinterpret_cast<const float2*>(ups + i);
    const auto activation = [&](float g, float u) -> std::uint32_t {
      return to_bf16(gated(arguments, __fmul_rn(__fmul_rn(g, mlp.gate_scale), power),
                           __fmul_rn(__fmul_rn(u, mlp.up_scale), power)));
    };
    *reinterpret_cast<std::uint32_t*>(inner + i) =
        activation(gate.x, up.x) | activation(gate.y, up.y) << 16;
  }
}

/// Sums of down become results, in place.
extern "C" __global__ void __launch_bounds__(128, 1)
    scale_groups(const moesaic::cuda::GroupSumArguments arguments) {
  using namespace moesaic::cuda;
  if (is_beyond(arguments.count)) return;
  const float scale = arguments.mlps[arguments.places[blockIdx.x].mlp].down_scale;
  const float power = arguments.row_scales[blockIdx.x];
  float* const sums = arguments.sums + static_cast<std::int64_t>(blockIdx.x) * arguments.width;
  const auto result = [&](float sum) { return __fmul_rn(__fmul_rn(sum, scale), power); };
  for (int i = static_cast<int>(threadIdx.x) * 4; i < arguments.width; i += kRowThreads * 4) {
    auto* const at = reinterpret_cast<float4*>(sums + i);
    const float4 four = *at;
    *at = float4{result(four.x), result(four.y), result(four.z), result(four.w)};
  }
}

/// The matrix that a library reads. A panel has 16 rows of it; a thread one of them and 32 k.
extern "C" __global__ void __launch_bounds__(128, 1)
    arrange_matrix(const moesaic::cuda::ArrangeArguments arguments) {
  using namespace moesaic::cuda;
  const int depth = arguments.depth;
  const int steps = depth / 32;
  const std::int64_t code_bytes = static_cast<std::int64_t>(arguments.rows) * depth / 2;
  const std::uint8_t* const panel =
      arguments.panels + static_cast<std::int64_t>(blockIdx.x) * (steps * kE2m1StepBytes + depth);
  const std::uint8_t* const panel_scales = panel + steps * kE2m1StepBytes;
  for (int i = static_cast<int>(threadIdx.x); i < steps * 16; i += kRowThreads) {
    const int step = i / 16;
    const int column = i % 16;
    const int row = static_cast<int>(blockIdx.x) * 16 + column;
    std::uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t codes = plain_e2m1(*reinterpret_cast<const std::uint32_t*>(
          panel + step * kE2m1StepBytes + j * 64 + column * 4));
      words[j] = 0;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {  // of even k, then of the odd one behind it
        words[j] |= (codes >> (4 * pair) & 15U) << (8 * pair);
        words[j] |= (codes >> (16 + 4 * pair) & 15U) << (8 * pair + 4);
      }
    }
    *reinterpret_cast<uint4*>(arguments.to + static_cast<std::int64_t>(row) * depth / 2 +
                              step * 16) = uint4{words[0], words[1], words[2], words[3]};
    std::uint8_t* const scales = arguments.to + code_bytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales[scale_offset(row, 2 * step + half, depth)] =
          panel_scales[(2 * step + half) * 16 + column];
    }
  }
}
