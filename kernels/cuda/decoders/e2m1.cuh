#pragma once

#include "kernels/cuda/decoders/loads.cuh"
#include "kernels/cuda/device_operations.cuh"

// The codes of nvfp4 and mxfp4 (kernels/formats/e2m1_body.h).

namespace moesaic::cuda {

inline constexpr int kE2m1StepBytes = 256;
inline constexpr std::uint32_t kTwoTo126 = 0x7e807e80U;  // twice

/// Packed codes with their flags as e2m1 has its last bit: sign, exponent, mantissa.
__device__ __forceinline__ std::uint32_t plain_e2m1(std::uint32_t codes) {
  return codes ^ ((codes >> 1 | codes >> 2) & 0x11111111U);
}

/// The codes of k = 2 r and 2 r + 1 as a pair of bf16. Their bits as those of bf16 numbers count
/// 2^-126 of what they are.
template <int R>
__device__ __forceinline__ std::uint32_t e2m1_pair(std::uint32_t plain) {
  // Of R 2 and 3 `plain` is shifted by 8. The code is put twice: its sign, then its other bits.
  constexpr std::uint32_t kPlace = R % 2 * 4;
  const std::uint32_t code = plain & 0x000f000fU << kPlace;
  const std::uint32_t twice = code * (1U << (12 - kPlace) | 1U << (6 - kPlace));
  return multiply_pairs(twice & 0x81c081c0U, kTwoTo126);
}

/// A word's eight weights times `scale`, a pair of bf16.
__device__ __forceinline__ void scaled_e2m1(std::uint32_t word, std::uint32_t scale,
                                            std::uint32_t (&pairs)[4]) {
  const std::uint32_t plain = plain_e2m1(word);
  pairs[0] = multiply_pairs(e2m1_pair<0>(plain), scale);
  pairs[1] = multiply_pairs(e2m1_pair<1>(plain), scale);
  pairs[2] = multiply_pairs(e2m1_pair<2>(plain >> 8), scale);
  pairs[3] = multiply_pairs(e2m1_pair<3>(plain >> 8), scale);
}

}  // namespace moesaic::cuda
