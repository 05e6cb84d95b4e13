#pragma once

#include "kernels/cpu/avx512/decoders/words.h"

// Codes of kernels/formats/e4m3_body.h, one word each. Internal to each kernel that has them.

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// emit(line, codes, rare) for the 16 lines of a step: 32 codes as words, their signs in bits 7 to
/// 15, and whether a zero or a subnormal number may be among them.
template <typename Emit>
[[gnu::always_inline]] inline void for_each_e4m3_line(const std::byte* step, const Emit& emit) {
#pragma GCC unroll 8
  for (int pair = 0; pair < 8; ++pair) {
    const __m512i bytes = _mm512_loadu_si512(step + 64 * pair);
    const bool rare = _mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) != 0;
    emit(2 * pair, _mm512_cvtepi8_epi16(_mm512_castsi512_si256(bytes)), rare);
    emit(2 * pair + 1, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(bytes, 1)), rare);
  }
}

/// Exponent and mantissa at their places in bf16, and the sign.
inline __m512i place_e4m3(__m512i codes) {
  return _mm512_and_si512(_mm512_slli_epi16(codes, 4),
                          _mm512_set1_epi16(static_cast<short>(0x87f0)));
}

/// Where a code's exponent is 0, its mantissa's entry in a table of 8 words and its sign; else
/// `words`.
inline __m512i with_subnormals(__m512i words, __m512i codes, __m128i table) {
  const __mmask32 subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78));
  const __m512i magnitude = _mm512_permutexvar_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(7)),
                                                     _mm512_castsi128_si512(table));
  const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0x8000)));
  return _mm512_mask_add_epi16(words, subnormal, magnitude, sign);
}

END_TARGET

}  // namespace
}  // namespace moesaic
