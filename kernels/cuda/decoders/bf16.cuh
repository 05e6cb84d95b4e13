#pragma once

#include "kernels/cuda/decoders/loads.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/bf16.h, as loads.cuh says.
struct Decoder {
  static constexpr int kAhead = 2;
  static constexpr int kAheadOfMany = 2;
  const std::uint8_t* lines;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm&) {
    return static_cast<std::int64_t>(steps) * 1024;
  }
  __device__ Decoder(const std::uint8_t* panel, int, const PanelForm&, int j, int column)
      : lines(panel + j * 256 + column * 4) {
    __builtin_assume(__isGlobal(lines));
  }

  __device__ __forceinline__ void advance(int steps) { lines += steps * 1024; }

  template <int Columns>
  struct Codes {
    Words<Columns> words[4];
  };
  template <int Columns>
  __device__ __forceinline__ Codes<Columns> load(int step) const {
    const std::uint8_t* const first = lines + static_cast<std::int64_t>(step) * 1024;
    Codes<Columns> codes;
#pragma unroll
    for (int r = 0; r < 4; ++r) codes.words[r] = load_words<Columns>(first + r * 64);
    return codes;
  }
  template <int Columns>
  __device__ __forceinline__ void unpack(const Codes<Columns>& from,
                                         std::uint32_t (&pairs)[Columns][4]) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < Columns; ++c) pairs[c][r] = from.words[r].word[c];
    }
  }
};

}  // namespace moesaic::cuda
