#pragma once

#include "kernels/cpu/avx512/decoders/e4m3.h"
#include "kernels/formats/mxfp8.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp8Decoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 512;

  Mxfp8Decoder(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)), scales_(codes_ + mxfp8_format::scales_offset(matrix.depth)) {}

  /// emit(line, 32 words) for the 16 lines of a step: the code's exponent and mantissa at their
  /// places in bf16, plus the scale's exponent less the bias of e4m3.
  template <typename Emit>
  [[gnu::always_inline]] void step(std::int64_t step, const Emit& emit) const {
    const std::byte* scales = scales_ + step * 16;
    const __m512i exponents =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
    const __m512i one = _mm512_slli_epi32(_mm512_sub_epi32(exponents, _mm512_set1_epi32(7)), 7);
    const __m512i offsets = _mm512_mask_blend_epi16(0xaaaaaaaa, one, _mm512_slli_epi32(one, 16));
    const auto decode = [&](int line, __m512i codes, bool rare) __attribute__((always_inline)) {
      __m512i words = place_e4m3(codes);
      if (rare) [[unlikely]]
        words = with_subnormals(words, codes, subnormals());
      const __mmask32 nonzero = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x7f));
      emit(line, _mm512_maskz_add_epi16(nonzero, words, offsets));
    };
    for_each_e4m3_line(codes_ + step * kStepBytes, decode);
  }

 private:
  /// Mantissa m of exponent 0 stands for m / 2^9, whose exponent field would be 0, -1 or -2.
  [[gnu::always_inline]] static __m128i subnormals() {
    return _mm_setr_epi16(0, -0x100, -0x80, -0x80 + 0x40, 0, 0x20, 0x40, 0x60);
  }

  const std::byte* codes_;
  const std::byte* scales_;
};

END_TARGET

}  // namespace
}  // namespace moesaic
