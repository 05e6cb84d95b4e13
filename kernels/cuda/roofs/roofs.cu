#include "kernels/cuda/device_operations.cuh"
#include "kernels/cuda/roof_arguments.h"

// What a chip does at most: reads of its memory, and products from registers.

namespace moesaic::cuda {

__device__ __forceinline__ std::int64_t own_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * kRoofThreads + threadIdx.x;
}

}  // namespace moesaic::cuda

extern "C" __global__ void __launch_bounds__(256, 1)
    reads(const moesaic::cuda::RoofArguments arguments) {
  using namespace moesaic::cuda;
  const auto* data = static_cast<const uint4*>(arguments.data) + own_thread();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kRoofThreads;
  std::uint32_t sum = 0;
#pragma unroll 1
  for (int round = 0; round < arguments.rounds; ++round) {
    uint4 words[kRoofReads];
#pragma unroll
    for (int i = 0; i < kRoofReads; ++i) {
      words[i] = *data;
      data += stride;
    }
#pragma unroll
    for (int i = 0; i < kRoofReads; ++i) {
      sum ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    }
  }
  arguments.out[own_thread()] = sum;
}

/// mma.sync of bf16: 4,096 operations of a warp each.
extern "C" __global__ void __launch_bounds__(256, 1)
    mma(const moesaic::cuda::RoofArguments arguments) {
  using namespace moesaic::cuda;
  float sums[kRoofChains][4] = {};
  const std::uint32_t one = 0x3f803f80U;  // 1 and 1
  const std::uint32_t a[4] = {one, one, one, one + threadIdx.x};
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
#pragma unroll
    for (int chain = 0; chain < kRoofChains; ++chain) mma_bf16(sums[chain], a, one, one);
  }
  float sum = 0;
#pragma unroll
  for (int chain = 0; chain < kRoofChains; ++chain) sum = tile_add(sum, sums[chain][chain % 4]);
  arguments.out[own_thread()] = __float_as_uint(sum);
}

/// Fused multiply-adds of CUDA cores: 2 operations of a thread each.
extern "C" __global__ void __launch_bounds__(256, 1)
    portable(const moesaic::cuda::RoofArguments arguments) {
  using namespace moesaic::cuda;
  float sums[kRoofChains] = {};
  const float factor = __uint_as_float(0x3f000000U + threadIdx.x);
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
#pragma unroll
    for (int chain = 0; chain < kRoofChains; ++chain) {
      sums[chain] = tile_fma(factor, sums[chain], 1.0F + static_cast<float>(chain));
    }
  }
  float sum = 0;
#pragma unroll
  for (int chain = 0; chain < kRoofChains; ++chain) sum = tile_add(sum, sums[chain]);
  arguments.out[own_thread()] = __float_as_uint(sum);
}
