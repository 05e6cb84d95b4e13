#pragma once

#include "kernels/cuda/decoders/e2m1.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/mxfp4.h, as loads.cuh says.
struct Decoder {
  static constexpr int kAhead = 2;
  static constexpr int kAheadOfMany = 2;
  const std::uint8_t* codes;
  const std::uint8_t* scales;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm&) {
    return static_cast<std::int64_t>(steps) * kE2m1StepBytes + (steps * 16 + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm&, int j, int column)
      : codes(panel + j * 64 + column * 4),
        scales(panel + static_cast<std::int64_t>(steps) * kE2m1StepBytes + column) {
    __builtin_assume(__isGlobal(codes));
    __builtin_assume(__isGlobal(scales));
  }

  __device__ __forceinline__ void advance(int steps) {
    codes += steps * kE2m1StepBytes;
    scales += steps * 16;
  }

  template <int Columns>
  struct Codes {
    Words<Columns> words;
    std::uint32_t scales;  // a byte a column
  };
  template <int Columns>
  __device__ __forceinline__ Codes<Columns> load(int step) const {
    return {load_words<Columns>(codes + static_cast<std::int64_t>(step) * kE2m1StepBytes),
            load_bytes<Columns>(scales + static_cast<std::int64_t>(step) * 16)};
  }
  template <int Columns>
  __device__ __forceinline__ void unpack(const Codes<Columns>& from,
                                         std::uint32_t (&pairs)[Columns][4]) const {
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      const std::uint32_t code = from.scales >> (8 * c) & 0xffU;
      const std::uint32_t scale = code == 0 ? 0x40U : code << 7;  // 2^-127 is subnormal
      scaled_e2m1(from.words.word[c], scale | scale << 16, pairs[c]);
    }
  }
};

}  // namespace moesaic::cuda
