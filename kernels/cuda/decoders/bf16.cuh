#pragma once

#include "kernels/cuda/decoders/loads.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/bf16.h.
struct Decoder {
  const std::uint8_t* lines;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm&) {
    return static_cast<std::int64_t>(steps) * 1024;
  }
  __device__ Decoder(const std::uint8_t* panel, int, const PanelForm&) : lines(panel) {}

  /// Weights of k = 32 step + 8 j to 8 j + 7 and columns column, ..., as pairs of k.
  template <int Columns>
  __device__ __forceinline__ void decode(int step, int j, int column,
                                         std::uint32_t (&pairs)[Columns][4]) const {
    const std::uint8_t* const first = lines + (static_cast<std::int64_t>(step) * 4 + j) * 256;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const auto words = load_words<Columns>(first + r * 64 + column * 4);
#pragma unroll
      for (int c = 0; c < Columns; ++c) pairs[c][r] = words.word[c];
    }
  }
};

}  // namespace moesaic::cuda
