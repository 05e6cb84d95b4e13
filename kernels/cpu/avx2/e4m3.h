#pragma once

#include <cstddef>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// e4m3 codes, 16 of a line at a time. Internal to the kernels that have them.

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// 16 codes as words, their signs in bits 7 to 15.
inline __m256i load_e4m3(const std::byte* from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

/// For words whose exponent is 0 the entry of their mantissa in a table of 8 words, with their
/// sign; `others` elsewhere.
inline __m256i with_subnormals(__m256i codes, __m128i table, __m256i others) {
  const __m256i mantissa = _mm256_and_si256(codes, _mm256_set1_epi16(7));
  const __m256i bytes = _mm256_add_epi16(_mm256_mullo_epi16(mantissa, _mm256_set1_epi16(0x0202)),
                                         _mm256_set1_epi16(0x0100));
  const __m256i magnitude = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), bytes);
  const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi16(static_cast<short>(0x8000)));
  const __m256i subnormal =
      _mm256_cmpeq_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0x78)), _mm256_setzero_si256());
  return _mm256_blendv_epi8(others, _mm256_add_epi16(magnitude, sign), subnormal);
}

/// The values / 256 as bf16: exponent and mantissa moved to their places, and the exponent's offset
/// put in front.
inline __m256i e4m3_words(__m256i codes) {
  const __m256i placed = _mm256_or_si256(
      _mm256_and_si256(_mm256_slli_epi16(codes, 4), _mm256_set1_epi16(static_cast<short>(0x87f0))),
      _mm256_set1_epi16(0x3800));
  const __m128i subnormals =  // mantissa / 2^17
      _mm_setr_epi16(0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860);
  return with_subnormals(codes, subnormals, placed);
}

END_TARGET

}  // namespace
}  // namespace moesaic
