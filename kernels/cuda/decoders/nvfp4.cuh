#pragma once

#include "kernels/cuda/decoders/e2m1.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/nvfp4.h, as loads.cuh says.
struct Decoder {
  static constexpr int kAhead = 2;
  static constexpr int kAheadOfMany = 2;
  const std::uint8_t* codes;
  const std::uint8_t* scales;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm&) {
    return static_cast<std::int64_t>(steps) * kE2m1StepBytes + (steps * 32 + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm&, int j, int column)
      : codes(panel + j * 64 + column * 4),
        scales(panel + static_cast<std::int64_t>(steps) * kE2m1StepBytes + j / 2 * 16 + column) {
    __builtin_assume(__isGlobal(codes));
    __builtin_assume(__isGlobal(scales));
  }

  __device__ __forceinline__ void advance(int steps) {
    codes += steps * kE2m1StepBytes;
    scales += steps * 32;
  }

  template <int Columns>
  struct Codes {
    Words<Columns> words;
    std::uint32_t scales;  // a byte a column
  };
  template <int Columns>
  __device__ __forceinline__ Codes<Columns> load(int step) const {
    return {load_words<Columns>(codes + static_cast<std::int64_t>(step) * kE2m1StepBytes),
            load_bytes<Columns>(scales + static_cast<std::int64_t>(step) * 32)};
  }
  template <int Columns>
  __device__ __forceinline__ void unpack(const Codes<Columns>& from,
                                         std::uint32_t (&pairs)[Columns][4]) const {
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      // e4m3 bits as those of a bf16 number count 2^-120 of what they are.
      const std::uint32_t twice = __byte_perm(from.scales, 0, c == 0 ? 0x4040 : 0x4141);
      const std::uint32_t scale = multiply_pairs(twice << 4, 0x7b807b80U);
      scaled_e2m1(from.words.word[c], scale, pairs[c]);
    }
  }
};

}  // namespace moesaic::cuda
