#pragma once

#include "kernels/cuda/decoders/loads.cuh"
#include "kernels/cuda/device_operations.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/fp8_block.h, as loads.cuh says.
struct Decoder {
  static constexpr int kAhead = 2;
  static constexpr int kAheadOfMany = 1;
  const std::uint8_t* codes;
  const float* scales;
  int group_shift;
  int first_step = 0;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm& form) {
    const int groups = ((steps - 1) >> form.group_shift) + 1;
    return static_cast<std::int64_t>(steps) * 512 + (groups * 4 + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm& form, int j, int column)
      : codes(panel + j * 128 + column / 4 * 16 + column % 4 * 2),
        scales(reinterpret_cast<const float*>(panel + static_cast<std::int64_t>(steps) * 512)),
        group_shift(form.group_shift) {
    __builtin_assume(__isGlobal(codes));
    __builtin_assume(__isGlobal(scales));
  }

  __device__ __forceinline__ void advance(int steps) {
    codes += steps * 512;
    first_step += steps;
  }

  template <int Columns>
  struct Codes {
    std::uint32_t pairs[4];  // of k, two bytes a column
    float scale;
  };
  template <int Columns>
  __device__ __forceinline__ Codes<Columns> load(int step) const {
    const std::uint8_t* const first = codes + static_cast<std::int64_t>(step) * 512;
    Codes<Columns> from;
    from.scale = scales[(first_step + step) >> group_shift];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      from.pairs[r] = load_code_pairs<Columns>(first + r / 2 * 64 + r % 2 * 8);
    }
    return from;
  }
  template <int Columns>
  __device__ __forceinline__ void unpack(const Codes<Columns>& from,
                                         std::uint32_t (&pairs)[Columns][4]) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        // e4m3 bits as those of a bf16 number count 2^-120 of what they are.
        const std::uint32_t spread = __byte_perm(from.pairs[r], 0, c == 0 ? 0x4140 : 0x4342);
        const std::uint32_t bits = (spread & 0x00800080U) << 8 | (spread & 0x007f007fU) << 4;
        const std::uint32_t plain = multiply_pairs(bits, 0x7b807b80U);
        pairs[c][r] = bf16_pair(__fmul_rn(low_of_pair(plain), from.scale),
                                __fmul_rn(high_of_pair(plain), from.scale));
      }
    }
  }
};

}  // namespace moesaic::cuda
