#pragma once

#include "kernels/cuda/decoders/loads.cuh"
#include "kernels/cuda/device_operations.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/int4_group.h.
struct Decoder {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  PanelForm form;

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm& form) {
    const int groups = ((steps - 1) >> form.group_shift) + 1;
    const int scale_bytes = groups * (form.wide_scales != 0 ? 64 : 32);
    return static_cast<std::int64_t>(steps) * 256 + (scale_bytes + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm& layout)
      : codes(panel), scales(panel + static_cast<std::int64_t>(steps) * 256), form(layout) {}

  /// Weights of k = 32 step + 8 j to 8 j + 7 and columns column, ..., as pairs of k.
  template <int Columns>
  __device__ __forceinline__ void decode(int step, int j, int column,
                                         std::uint32_t (&pairs)[Columns][4]) const {
    const auto words = load_words<2 * Columns>(codes + static_cast<std::int64_t>(step) * 256 +
                                               j / 2 * 128 + column * 8);
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      const Scale scale = scale_of(step >> form.group_shift, column + c);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int shift = j % 2 * 16 + 4 * r;
        pairs[c][r] = bf16_pair(scale.value(words.word[2 * c] >> shift),
                                scale.value(words.word[2 * c + 1] >> shift));
      }
    }
  }

 private:
  /// Codes count (code - 8) * scale + offset, exactly, whatever their zero point is.
  struct Scale {
    float scale;
    float offset;

    __device__ __forceinline__ float value(std::uint32_t code) const {
      const float from_8 = __fsub_rn(__uint_as_float(0x4b000000U | (code & 15U)), 8388616.0F);
      return __fmaf_rn(from_8, scale, offset);
    }
  };

  __device__ __forceinline__ Scale scale_of(int group, int column) const {
    const int at = group * 16 + column;
    if (form.wide_scales == 0) {
      const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(scales)[at];
      return {__uint_as_float(bits << 16), 0};
    }
    const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(scales)[at];
    const float scale = __uint_as_float(word & 0xffffff00U);
    const float zero =
        __fsub_rn(8388616.0F, __uint_as_float(0x4b000000U | (word & 0xffU)));  // 8 - zero
    return {scale, __fmul_rn(zero, scale)};
  }
};

}  // namespace moesaic::cuda
