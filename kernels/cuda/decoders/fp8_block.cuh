#pragma once

#include "kernels/cuda/decoders/loads.cuh"
#include "kernels/cuda/device_operations.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/fp8_block.h.
struct Decoder {
  const std::uint8_t* codes;
  const float* scales;
  int group_shift;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm& form) {
    const int groups = ((steps - 1) >> form.group_shift) + 1;
    return static_cast<std::int64_t>(steps) * 512 + (groups * 4 + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm& form)
      : codes(panel),
        scales(reinterpret_cast<const float*>(panel + static_cast<std::int64_t>(steps) * 512)),
        group_shift(form.group_shift) {}

  /// Weights of k = 32 step + 8 j to 8 j + 7 and columns column, ..., as pairs of k.
  template <int Columns>
  __device__ __forceinline__ void decode(int step, int j, int column,
                                         std::uint32_t (&pairs)[Columns][4]) const {
    const float scale = scales[step >> group_shift];
    const std::uint8_t* const first =
        codes + static_cast<std::int64_t>(step) * 512 + j * 128 + column / 4 * 16 + column % 4 * 2;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::uint32_t bytes = load_code_pairs<Columns>(first + r / 2 * 64 + r % 2 * 8);
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        // e4m3 bits as those of a bf16 number count 2^-120 of what they are.
        const std::uint32_t spread = __byte_perm(bytes, 0, c == 0 ? 0x4140 : 0x4342);
        const std::uint32_t bits = (spread & 0x00800080U) << 8 | (spread & 0x007f007fU) << 4;
        const std::uint32_t plain = multiply_pairs(bits, 0x7b807b80U);
        pairs[c][r] =
            bf16_pair(__fmul_rn(low_of_pair(plain), scale), __fmul_rn(high_of_pair(plain), scale));
      }
    }
  }
};

}  // namespace moesaic::cuda
