#pragma once

#include "kernels/cpu/avx512/decoders/e4m3.h"
#include "kernels/formats/mxfp8.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp8Decoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 512;

  Mxfp8Decoder(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)), scales_(codes_ + mxfp8_format::scales_offset(matrix.depth)) {}

  /// emit(line, 32 words) for the 8 lines of half a step: the code's value with the scale's
  /// exponent added. It may wrap below zero, from where the code's brings it back.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) const {
    const auto* scales = reinterpret_cast<const __m128i*>(scales_at(step));
    const __m512i exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(scales));
    const __m512i one = _mm512_slli_epi32(_mm512_sub_epi32(exponents, _mm512_set1_epi32(127)), 7);
    const __m512i offsets = _mm512_mask_blend_epi16(0xaaaaaaaa, one, _mm512_slli_epi32(one, 16));
    const auto scale_line = [&](int line, __m512i words, __m512i codes)
        __attribute__((always_inline)) {
      const __mmask32 nonzero = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x7f));
      emit(line, _mm512_maskz_add_epi16(nonzero, words, offsets));
    };
    for_each_e4m3_value(codes_ + step * kStepBytes, half, scale_line);
  }

  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const { return scales_ + step * 16; }

 private:
  const std::byte* codes_;
  const std::byte* scales_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
