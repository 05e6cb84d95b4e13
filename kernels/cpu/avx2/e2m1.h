#pragma once

#include <cstddef>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// e2m1 codes in the packed form of kernels/formats/e2m1_body.h. Internal to the kernels that have
// them.

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// Words of 8 columns x 2 k: 0.75 and 0.5 times each column's scale, as bf16.
struct E2m1Bases {
  __m256i three_quarters;
  __m256i half;
};

/// Each word of 16 bits twice.
inline __m256i twice(__m256i words_in_dwords) {
  return _mm256_or_si256(words_in_dwords, _mm256_slli_epi32(words_in_dwords, 16));
}

/// 32 bytes of vector v of a step, 8 of its 16 columns, as their half of lines 4 v to 4 v + 3,
/// which are 64 bytes apart.
inline void decode_e2m1(const std::byte* from, const E2m1Bases& bases, std::byte* lines) {
  __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  for (int r = 0; r < 4; ++r, lines += 64) {
    const __m256i flag = _mm256_srai_epi16(_mm256_slli_epi16(words, 15), 15);
    const __m256i base = _mm256_blendv_epi8(bases.three_quarters, bases.half, flag);
    const __m256i sign_and_exponent =
        _mm256_and_si256(words, _mm256_set1_epi16(static_cast<short>(0x8180)));
    const __m256i zero = _mm256_cmpeq_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0x0181)),
                                            _mm256_setzero_si256());
    const __m256i result = _mm256_andnot_si256(zero, _mm256_add_epi16(base, sign_and_exponent));
    _mm256_store_si256(reinterpret_cast<__m256i*>(lines), result);
    words = _mm256_or_si256(_mm256_slli_epi16(words, 2), _mm256_srli_epi16(words, 14));
  }
}

END_TARGET

}  // namespace
}  // namespace moesaic
