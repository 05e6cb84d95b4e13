#pragma once

#include "kernels/cuda/device_operations.cuh"
#include "kernels/cuda/row_arguments.h"

// Activations rounded to nvfp4, a row a block of kRowThreads: the operations of
// kernels/nvfp4_activations.cpp in their order, to the same bits.

namespace moesaic::cuda {

inline constexpr float kLargestE2m1 = 6;
inline constexpr float kLargestE4m3 = 448;
inline constexpr std::uint32_t kInfinity = 0x7f800000;

/// Whether this block has no row, where only the GPU knows how many there are; null: all have one.
__device__ __forceinline__ bool is_beyond(const std::int32_t* count) {
  return count != nullptr && static_cast<int>(blockIdx.x) >= *count;
}

/// kernels/formats/elements.h: the nearest code, even ones at ties, of a magnitude that is a
/// number.
template <int ExponentBits, int MantissaBits>
__device__ __forceinline__ std::uint32_t nearest_code(float magnitude, float largest) {
  constexpr int kSmallestExponent = 128 - (1 << (ExponentBits - 1)) + 1;  // of floats
  const int largest_bits = __float_as_int(largest);
  const int bits = min(__float_as_int(magnitude), largest_bits);
  const int exponent = max(bits >> 23, kSmallestExponent);
  const int rounder = (exponent + 23 - MantissaBits) << 23;
  const int significand =
      __float_as_int(__fadd_rn(__int_as_float(bits), __int_as_float(rounder))) - rounder;
  return static_cast<std::uint32_t>(significand + ((exponent - kSmallestExponent) << MantissaBits));
}

// Codes whose bits, put where a float has its own, count 2^-120 or 2^-126 of what they are.
__device__ __forceinline__ float e4m3_value(std::uint32_t code) {
  return __fmul_rn(__uint_as_float(code << 20), 0x1p120F);
}
__device__ __forceinline__ float e2m1_value(std::uint32_t code) {
  return __fmul_rn(__uint_as_float((code & 8U) << 28 | (code & 7U) << 22), 0x1p126F);
}

/// The smallest power of two that is not below `value`, a normal number.
__device__ __forceinline__ float power_above(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return __uint_as_float((bits & 0x7f800000U) + ((bits & 0x7fffffU) != 0 ? 0x800000U : 0U));
}

/// Sixteen elements as pairs of bf16.
struct Sixteen {
  std::uint32_t pairs[8] = {};

  /// From element `k` of a row on; zero beyond its end.
  __device__ __forceinline__ void load(const std::uint16_t* row, int k, int depth) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (k + 8 * i >= depth) break;
      const uint4 eight = *reinterpret_cast<const uint4*>(row + k + 8 * i);
      pairs[4 * i] = eight.x;
      pairs[4 * i + 1] = eight.y;
      pairs[4 * i + 2] = eight.z;
      pairs[4 * i + 3] = eight.w;
    }
  }
  __device__ __forceinline__ void store(std::uint16_t* row, int k, int depth) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (k + 8 * i >= depth) break;
      *reinterpret_cast<uint4*>(row + k + 8 * i) =
          uint4{pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]};
    }
  }
  /// The largest magnitude's bits as those of a float; of an infinity or a NaN if there is one.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t largest() const {
    std::uint32_t most = 0;
#pragma unroll
    for (const std::uint32_t pair : pairs) {
      most = max(most, max(pair << 16 & 0x7fffffffU, pair & 0x7fff0000U));
    }
    return most;
  }
  /// Element `i`.
  [[nodiscard]] __device__ __forceinline__ float value(int i) const {
    return i % 2 == 0 ? low_of_pair(pairs[i / 2]) : high_of_pair(pairs[i / 2]);
  }
};

/// The scale of sixteen elements, and what makes codes of them.
struct GroupScale {
  std::uint32_t code;
  float scale;    // times the row's
  float inverse;  // of that
  float unit;     // of the results

  __device__ __forceinline__ GroupScale(std::uint32_t largest, float row_scale, bool is_given)
      : code(nearest_code<4, 3>(
            __fdiv_rn(__uint_as_float(largest), __fmul_rn(kLargestE2m1, row_scale)), kLargestE4m3)),
        scale(__fmul_rn(e4m3_value(code), row_scale)),
        inverse(code == 0 ? 0.0F : __fdiv_rn(1.0F, scale)),
        unit(is_given ? e4m3_value(code) : scale) {}

  /// The e2m1 code of an element, with its sign.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t encode(float value) const {
    const std::uint32_t bits = __float_as_uint(__fmul_rn(value, inverse));
    return nearest_code<2, 1>(__uint_as_float(bits & 0x7fffffffU), kLargestE2m1) |
           (bits >> 28 & 8U);
  }
  /// What the element becomes.
  [[nodiscard]] __device__ __forceinline__ float round(float value) const {
    return __fmul_rn(e2m1_value(encode(value)), unit);
  }
};

using WarpMaxima = std::uint32_t[kRowThreads / 32];

/// The scale of a row of `depth` elements: a power of two, or `input_scale` where it is not 0; 0
/// for one that counts as zeros, NaN if a value is not finite. All threads of the block, which
/// share `of_warps`.
__device__ __forceinline__ float scale_of_row(const std::uint16_t* row, int depth,
                                              float input_scale, WarpMaxima& of_warps) {
  std::uint32_t most = 0;
  for (int k = static_cast<int>(threadIdx.x) * 16; k < depth; k += kRowThreads * 16) {
    Sixteen group;
    group.load(row, k, depth);
    most = max(most, group.largest());
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    most = max(most, __shfl_xor_sync(0xffffffffU, most, distance));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (const std::uint32_t warp : of_warps) most = max(most, warp);
  if (most >= kInfinity) return __uint_as_float(0x7fc00000U);
  const float amax = __uint_as_float(most);
  if (amax < 0x1p-100F) return 0;
  if (input_scale != 0) return input_scale;
  return power_above(__fdiv_rn(amax, kLargestE2m1 * kLargestE4m3));
}

/// What stands apart from a row's codes and scales: its power of two, 1 where its scale is given or
/// it counts as zeros.
__device__ __forceinline__ float power_of_row(float row_scale, float input_scale) {
  const bool is_given = input_scale != 0 && row_scale == input_scale;
  return row_scale == 0 || is_given ? 1.0F : row_scale;
}

}  // namespace moesaic::cuda
