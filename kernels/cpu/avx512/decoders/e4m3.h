#pragma once

#include "kernels/cpu/avx512/decoders/words.h"

// Codes of kernels/formats/e4m3_body.h as words of bf16. Internal to each kernel that has them.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// 32 codes as words that have a code in either byte.
inline __m512i e4m3_words(__m512i bytes, int line) {
  return line % 2 == 0 ? _mm512_unpacklo_epi8(bytes, bytes) : _mm512_unpackhi_epi8(bytes, bytes);
}

/// emit(line, codes) for the 8 lines of half a step: e4m3_words.
template <typename Emit>
[[gnu::always_inline]] inline void for_each_e4m3_line(const std::byte* step, int half,
                                                      const Emit& emit) {
  const std::byte* codes = step + 256 * half;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    emit(8 * half + i, e4m3_words(_mm512_loadu_si512(codes + i / 2 * 64), i));
  }
}

/// Two lines of codes whose exponents are not 0, as bf16: exponent and mantissa at their places,
/// and the difference of the biases.
struct E4m3Values {
  __m512i lines[2];
};
inline E4m3Values normal_e4m3(__m512i bytes) {
#if defined(MOESAIC_RICH_AVX512)
  // Rows of bits that make the upper and the lower byte of a word from a code: the sign and the
  // upper three bits k of the exponent, to which 60 is added: bit 6 is bit 2 of k and bits 5 to 2
  // are its opposite; and the other four bits, from bit 4 on.
  const __m512i upper_bits = _mm512_set1_epi64(static_cast<long long>(0x1020404040404080));
  const __m512i lower_bits = _mm512_set1_epi64(0x0000000001020408);
  const __m512i upper = _mm512_gf2p8affine_epi64_epi8(bytes, upper_bits, 0x3c);
  const __m512i lower = _mm512_gf2p8affine_epi64_epi8(bytes, lower_bits, 0);
  return {{_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)}};
#else
  E4m3Values values;
  for (int line = 0; line < 2; ++line) {
    const __m512i placed = _mm512_and_si512(_mm512_srai_epi16(e4m3_words(bytes, line), 4),
                                            _mm512_set1_epi16(static_cast<short>(0x87f0)));
    values.lines[line] = _mm512_add_epi16(placed, _mm512_set1_epi16((127 - 7) << 7));
  }
  return values;
#endif
}

/// Where a code's exponent is 0, its value: mantissa / 2^9 with the code's sign; else `words`.
inline __m512i with_subnormals(__m512i words, __m512i codes) {
  const __m512i magnitudes = _mm512_castsi128_si512(
      _mm_setr_epi16(0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  const __mmask32 subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78));
  const __m512i index = _mm512_and_si512(codes, _mm512_set1_epi16(7));
  const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0x8000)));
  return _mm512_mask_add_epi16(words, subnormal, _mm512_permutexvar_epi16(index, magnitudes), sign);
}

/// emit(line, words, codes) for the 8 lines of half a step: values, and e4m3_words. Zeros and
/// subnormals are rare.
template <typename Emit>
[[gnu::always_inline]] inline void for_each_e4m3_value(const std::byte* step, int half,
                                                       const Emit& emit) {
#pragma GCC unroll 4
  for (int pair = 4 * half; pair < 4 * half + 4; ++pair) {
    const __m512i bytes = _mm512_loadu_si512(step + 64 * pair);
    E4m3Values values = normal_e4m3(bytes);
    if (_mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) != 0) [[unlikely]] {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        values.lines[i] = with_subnormals(values.lines[i], e4m3_words(bytes, i));
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) emit(2 * pair + i, values.lines[i], e4m3_words(bytes, i));
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
