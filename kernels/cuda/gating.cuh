#pragma once

#include "kernels/cuda/device_operations.cuh"

// kernels/cpu/vector_functions.h's gate_activations, to the same bits: the same operations in the
// same order, subnormal numbers kept.

namespace moesaic::cuda {

/// a > b ? a : b and a < b ? a : b, so b where either is NaN.
__device__ __forceinline__ float max_of(float a, float b) {
  return a > b ? a : b;
}
__device__ __forceinline__ float min_of(float a, float b) {
  return a < b ? a : b;
}

/// value * 2^n, rounded once: value is about 1, so that the first product is exact.
__device__ __forceinline__ float scale_by_power(float value, float n) {
  const int power = static_cast<int>(n);
  const int half = power / 2;
  const float once = __fmul_rn(value, __int_as_float((half + 127) << 23));
  return __fmul_rn(once, __int_as_float((power - half + 127) << 23));
}

/// kernels/cpu/vector_math.h
__device__ __forceinline__ float exponential(float x) {
  constexpr float kRound = 0x1.8p23F;
  x = min_of(89.0F, max_of(-104.0F, x));
  if (x != x) return x;
  const float n = __fsub_rn(__fmaf_rn(x, 0x1.715476p+0F, kRound), kRound);
  float r = __fmaf_rn(n, -0x1.62e43p-1F, x);
  r = __fmaf_rn(n, 0x1.05c61p-29F, r);
  float p = 0x1.6a4b36p-10F;
  p = __fmaf_rn(p, r, 0x1.12398ep-7F);
  p = __fmaf_rn(p, r, 0x1.5558b2p-5F);
  p = __fmaf_rn(p, r, 0x1.555492p-3F);
  p = __fmaf_rn(p, r, 0x1.fffffcp-2F);
  p = __fmaf_rn(p, r, 1.0F);
  p = __fmaf_rn(p, r, 1.0F);
  return scale_by_power(p, n);
}

/// The gated activation of gate and up, as `arguments` of a kernel say: limit, alpha, offset.
template <typename Arguments>
__device__ __forceinline__ float gated(const Arguments& arguments, float gate, float up) {
  const float g = min_of(arguments.limit, gate);
  const float u = max_of(-arguments.limit, min_of(arguments.limit, up));
  const float inverse =
      __fadd_rn(1.0F, exponential(__fsub_rn(0.0F, __fmul_rn(arguments.alpha, g))));
  return __fmul_rn(__fdiv_rn(g, inverse), __fadd_rn(u, arguments.offset));
}

}  // namespace moesaic::cuda
