#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/target.h"
#include "kernels/packed_matrix.h"

// What the decoders of several formats share. A line is 32 words of bf16: 16 columns x 2 k.
// Internal to each kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// 16 floats rounded to nearest even, in the upper halves of the lanes; the lower ones mean
/// nothing. No NaN among them.
inline __m512i round_upper(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

/// The same as floats.
inline __m512 round_floats(__m512 values) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  return _mm512_castsi512_ps(_mm512_and_si512(round_upper(values), upper));
}

/// round_floats() of numbers below 2^111, in three operations instead of five (Veltkamp): the
/// difference of c = x + 2^16 x, rounded, and c - x, rounded, is x with 16 bits less.
inline __m512 round_small_floats(__m512 x) {
  const __m512 c = _mm512_mul_ps(x, _mm512_set1_ps(65537));
  return _mm512_sub_ps(c, _mm512_sub_ps(c, x));
}

/// 32 floats rounded to nearest even, `low` first. No NaN among them.
inline __m512i round_to_words(__m512 low, __m512 high) {
#if defined(MOESAIC_RICH_AVX512)
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
#else
  const __m256i first = _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_upper(low), 16));
  const __m256i second = _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_upper(high), 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
#endif
}

/// 16 bytes, e4m3 without sign, as floats: half precision has the same fields two bits to the
/// right, and a bias that is 8 larger.
inline __m512 e4m3_to_floats(__m128i bytes) {
  const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256));
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
