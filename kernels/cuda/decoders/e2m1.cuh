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

/// What a lane reads of a panel, as loads.cuh says: codes, and behind them `StepScales` bytes of
/// scales a step, of which the lane has one for each column.
template <int StepScales>
struct E2m1Panel {
  static constexpr int kAhead = 2;
  static constexpr int kAheadOfMany = 2;
  const std::uint8_t* codes;
  const std::uint8_t* scales;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm&) {
    return static_cast<std::int64_t>(steps) * kE2m1StepBytes + (steps * StepScales + 63) / 64 * 64;
  }
  /// `first_scale`: of a step, of column 0.
  __device__ E2m1Panel(const std::uint8_t* panel, int steps, int j, int column, int first_scale)
      : codes(panel + j * 64 + column * 4),
        scales(panel + static_cast<std::int64_t>(steps) * kE2m1StepBytes + first_scale + column) {
    __builtin_assume(__isGlobal(codes));
    __builtin_assume(__isGlobal(scales));
  }
  __device__ __forceinline__ void advance(int steps) {
    codes += steps * kE2m1StepBytes;
    scales += steps * StepScales;
  }

  template <int Columns>
  struct Codes {
    Words<Columns> words;
    std::uint32_t scales;  // a byte a column
  };
  template <int Columns>
  __device__ __forceinline__ Codes<Columns> load(int step) const {
    return {load_words<Columns>(codes + static_cast<std::int64_t>(step) * kE2m1StepBytes),
            load_bytes<Columns>(scales + static_cast<std::int64_t>(step) * StepScales)};
  }
};

}  // namespace moesaic::cuda
