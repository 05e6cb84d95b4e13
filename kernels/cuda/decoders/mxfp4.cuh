#pragma once

#include "kernels/cuda/decoders/e2m1.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/mxfp4.h.
struct Decoder {
  const std::uint8_t* codes;
  const std::uint8_t* scales;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm&) {
    return static_cast<std::int64_t>(steps) * kE2m1StepBytes + (steps * 16 + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm&)
      : codes(panel), scales(panel + static_cast<std::int64_t>(steps) * kE2m1StepBytes) {}

  /// Weights of k = 32 step + 8 j to 8 j + 7 and columns column, ..., as pairs of k.
  template <int Columns>
  __device__ __forceinline__ void decode(int step, int j, int column,
                                         std::uint32_t (&pairs)[Columns][4]) const {
    const auto words = load_words<Columns>(codes + (step * 4 + j) * 64 + column * 4);
    const auto bytes = load_bytes<Columns>(scales + step * 16 + column);
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      const std::uint32_t code = bytes >> (8 * c) & 0xffU;
      const std::uint32_t scale = code == 0 ? 0x40U : code << 7;  // 2^-127 is subnormal
      scaled_e2m1(words.word[c], scale | scale << 16, pairs[c]);
    }
  }
};

}  // namespace moesaic::cuda
