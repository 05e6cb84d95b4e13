#pragma once

#include "kernels/cpu/avx512/decoders/words.h"
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
    const std::byte* codes = codes_ + step * kStepBytes;
    const std::byte* scales = scales_ + step * 16;
    const __m512i exponents =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
    const __m512i one = _mm512_slli_epi32(_mm512_sub_epi32(exponents, _mm512_set1_epi32(7)), 7);
    const __m512i offsets = _mm512_mask_blend_epi16(0xaaaaaaaa, one, _mm512_slli_epi32(one, 16));
#pragma GCC unroll 8
    for (int pair = 0; pair < 8; ++pair) {
      const std::byte* at = codes + 64 * pair;
      const __m512i bytes = _mm512_loadu_si512(at);
      const __m512i first = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(bytes));
      const __m512i second = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(bytes, 1));
      __m512i low = place(first);
      __m512i high = place(second);
      if (_mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) != 0) [[unlikely]] {
        low = fix_subnormals(low, first);
        high = fix_subnormals(high, second);
      }
      emit(2 * pair, add_exponent(low, first, offsets));
      emit(2 * pair + 1, add_exponent(high, second, offsets));
    }
  }

 private:
  [[gnu::always_inline]] static __m512i place(__m512i codes) {
    return _mm512_and_si512(_mm512_slli_epi16(codes, 4),
                            _mm512_set1_epi16(static_cast<short>(0x87f0)));
  }
  /// Mantissa m of exponent 0 stands for m / 2^9, whose exponent field would be 0, -1 or -2.
  [[gnu::always_inline]] static __m512i fix_subnormals(__m512i words, __m512i codes) {
    const __m512i values =
        _mm512_castsi128_si512(_mm_setr_epi16(0, -0x100, -0x80, -0x80 + 0x40, 0, 0x20, 0x40, 0x60));
    const __mmask32 subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78));
    const __m512i magnitude =
        _mm512_permutexvar_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(7)), values);
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0x8000)));
    return _mm512_mask_add_epi16(words, subnormal, magnitude, sign);
  }
  [[gnu::always_inline]] static __m512i add_exponent(__m512i words, __m512i codes,
                                                     __m512i offsets) {
    const __mmask32 nonzero = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x7f));
    return _mm512_maskz_add_epi16(nonzero, words, offsets);
  }

  const std::byte* codes_;
  const std::byte* scales_;
};

END_TARGET

}  // namespace
}  // namespace moesaic
