#pragma once

#include "kernels/cuda/decoders/loads.cuh"
#include "kernels/cuda/device_operations.cuh"

namespace moesaic::cuda {

/// A packed panel of kernels/formats/int4_group.h, as loads.cuh says.
struct Decoder {
  static constexpr int kAhead = 2;
  static constexpr int kAheadOfMany = 1;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  PanelForm form;
  int first_step = 0;
  std::uint32_t halves;  // which of a word are of the lane's k

  __device__ static std::int64_t panel_bytes(int steps, const PanelForm& form) {
    const int groups = ((steps - 1) >> form.group_shift) + 1;
    const int scale_bytes = groups * (form.wide_scales != 0 ? 64 : 32);
    return static_cast<std::int64_t>(steps) * 256 + (scale_bytes + 63) / 64 * 64;
  }
  __device__ Decoder(const std::uint8_t* panel, int steps, const PanelForm& layout, int j,
                     int column)
      : codes(panel + j / 2 * 128 + column * 8),
        scales(panel + static_cast<std::int64_t>(steps) * 256 +
               column * (layout.wide_scales != 0 ? 4 : 2)),
        form(layout),
        halves(j % 2 == 0 ? 0x5410U : 0x7632U) {
    __builtin_assume(__isGlobal(codes));
    __builtin_assume(__isGlobal(scales));
  }

  __device__ __forceinline__ void advance(int steps) {
    codes += steps * 256;
    first_step += steps;
  }

  template <int Columns>
  struct Codes {
    Words<2 * Columns> words;
    std::uint32_t scales[Columns];  // as they are stored
  };
  template <int Columns>
  __device__ __forceinline__ Codes<Columns> load(int step) const {
    Codes<Columns> from;
    from.words = load_words<2 * Columns>(codes + static_cast<std::int64_t>(step) * 256);
    const int group = ((first_step + step) >> form.group_shift) * 16;
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      from.scales[c] =
          form.wide_scales != 0
              ? reinterpret_cast<const std::uint32_t*>(scales)[group + c]
              : std::uint32_t{reinterpret_cast<const std::uint16_t*>(scales)[group + c]};
    }
    return from;
  }
  /// Codes count (code - 8) * scale + offset, rounded once, whatever their zero point is.
  template <int Columns>
  __device__ __forceinline__ void unpack(const Codes<Columns>& from,
                                         std::uint32_t (&pairs)[Columns][4]) const {
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      // Codes of k = 2 r in the low half, of 2 r + 1 in the high one.
      const std::uint32_t both =
          __byte_perm(from.words.word[2 * c], from.words.word[2 * c + 1], halves);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // 128 + code, less 136
        const std::uint32_t from_8 =
            add_pairs((both >> (4 * r) & 0x000f000fU) | 0x43004300U, 0xc308c308U);
        pairs[c][r] = form.wide_scales != 0 ? wide_pair(from_8, from.scales[c])
                                            : multiply_pairs(from_8, from.scales[c] * 0x10001U);
      }
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t wide_pair(std::uint32_t from_8,
                                                            std::uint32_t word) {
    const float scale = __uint_as_float(word & 0xffffff00U);
    const float zero =
        __fsub_rn(8388616.0F, __uint_as_float(0x4b000000U | (word & 0xffU)));  // 8 - zero
    const float offset = __fmul_rn(zero, scale);
    return bf16_pair(__fmaf_rn(low_of_pair(from_8), scale, offset),
                     __fmaf_rn(high_of_pair(from_8), scale, offset));
  }
};

}  // namespace moesaic::cuda
