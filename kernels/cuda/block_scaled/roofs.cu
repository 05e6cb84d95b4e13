#include "kernels/cuda/roof_arguments.h"
#include "kernels/cuda/scaled_mma.cuh"

// What a chip does at most of what kernels/cuda/block_scaled multiplies with.

/// mma.sync of e2m1 with scales: 16,384 operations of a warp each.
extern "C" __global__ void __launch_bounds__(256, 1)
    block_scaled(const moesaic::cuda::RoofArguments arguments) {
  using namespace moesaic::cuda;
  float sums[kRoofChains][4] = {};
  const std::uint32_t ones = 0x22222222U;  // e2m1
  const std::uint32_t a[4] = {ones, ones, ones, ones + threadIdx.x % 8};
  const std::uint32_t b[2] = {ones, ones};
  const ScaleWord scales = {0x38383838U, 0};  // e4m3 of 1
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
#pragma unroll
    for (int chain = 0; chain < kRoofChains; ++chain) {
      mma_nvfp4(sums[chain], a, scales, b, scales);
    }
  }
  float sum = 0;
#pragma unroll
  for (int chain = 0; chain < kRoofChains; ++chain) sum = __fadd_rn(sum, sums[chain][chain % 4]);
  arguments.out[static_cast<std::int64_t>(blockIdx.x) * kRoofThreads + threadIdx.x] =
      __float_as_uint(sum);
}
