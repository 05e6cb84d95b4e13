#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// e2m1 codes in the packed form of kernels/formats/e2m1_body.h: a bf16 word is 1 or 1.5 times half
// the scale of its column, as the flag says, plus the code's exponent and sign. Internal to each
// kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Eight columns' words, each twice: half the scale times 1.5, and what to exclusive-or to that for
/// half the scale times 1.
struct E2m1Scales {
  __m256i three_quarters;
  __m256i to_half;
};

/// Eight columns of lines 4 j to 4 j + 3 from their half of 64 bytes.
[[gnu::always_inline]] inline void decode_e2m1(const std::byte* codes, const E2m1Scales& scales,
                                               std::byte* lines) {
  __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  MOESAIC_UNROLL
  for (int r = 0; r < 4; ++r) {
    const __m256i exponent =
        _mm256_and_si256(_mm256_slli_epi16(words, 6), _mm256_set1_epi16(0x180));
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(words, 12),
                                          _mm256_set1_epi16(static_cast<short>(0x8000)));
    const __m256i flag = _mm256_set1_epi16(1);
    const __m256i is_one = _mm256_cmpeq_epi16(_mm256_and_si256(words, flag), flag);
    const __m256i base =
        _mm256_xor_si256(scales.three_quarters, _mm256_and_si256(is_one, scales.to_half));
    const __m256i is_small = _mm256_cmpeq_epi16(exponent, _mm256_setzero_si256());  // 0 or 0.5
    const __m256i is_zero = _mm256_andnot_si256(is_one, is_small);
    const __m256i sum = _mm256_add_epi16(base, _mm256_or_si256(exponent, sign));
    _mm256_store_si256(reinterpret_cast<__m256i*>(lines + 64 * r),
                       _mm256_andnot_si256(is_zero, sum));
    words = _mm256_srli_epi16(words, 4);
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
