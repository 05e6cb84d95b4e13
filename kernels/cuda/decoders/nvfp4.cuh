#pragma once

#include "kernels/cuda/decoders/e2m1.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/nvfp4.h, as loads.cuh says.
struct Decoder : E2m1Panel<32> {
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm&, int j, int column)
      : E2m1Panel(panel, steps, j, column, j / 2 * 16) {}

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
