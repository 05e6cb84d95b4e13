#pragma once

#include "kernels/cuda/decoders/e2m1.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/mxfp4.h, as loads.cuh says.
struct Decoder : E2m1Panel<16> {
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm&, int j, int column)
      : E2m1Panel(panel, steps, j, column, 0) {}

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
