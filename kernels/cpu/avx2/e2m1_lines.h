#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"
#include "kernels/formats/e2m1_body.h"

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

/// bf16 of codes, by their four bits: low bytes and high bytes, in both lanes.
struct E2m1Values {
  __m256i low;
  __m256i high;
};
/// Times 4^-Quarters.
template <int Quarters>
E2m1Values e2m1_values() {
  const __m128i low = _mm_set1_epi64x(static_cast<long long>(0x80c0004080c00000));
  const __m128i high = _mm_set_epi64x(static_cast<long long>(0xc0c0c0c0bfbfbf00),
                                      static_cast<long long>(0x404040403f3f3f00));
  const __m128i less = _mm_set1_epi64x(0x0101010101010100 * Quarters);  // zero stays
  return {_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(_mm_sub_epi8(high, less))};
}

/// What decoders of kernels/cpu/avx2/one_row.h have in common: each vector is of four columns, even
/// and odd k in turn; of eight columns 0, 1, 4, 5 and 2, 3, 6, 7.
struct E2m1RowDecoder {
  static constexpr std::int64_t kStepBytes = e2m1_body::kStepBytes;

  [[gnu::always_inline]] static __m256 join(__m256 first, __m256 second) {
    return _mm256_hadd_ps(first, second);
  }
  /// Something of eight columns as the two vectors have it.
  struct Paired {
    explicit Paired(__m256 columns)
        : of{_mm256_unpacklo_ps(columns, columns), _mm256_unpackhi_ps(columns, columns)} {}
    __m256 of[2];
  };
};

/// Lines 4 j to 4 j + 3 of eight columns, from their half of 64 bytes, times the values of a row:
/// chains[0] and [1]. scale(values, i) of codes in vector i.
template <typename Scale>
[[gnu::always_inline]] inline void sum_e2m1(const std::byte* codes, const E2m1Values& values,
                                            const float* row, const Scale& scale, __m256* chains) {
  const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  __m256i words[2][2];  // lines 0 and 2 in turn, lines 1 and 3; of each vector's columns
  MOESAIC_UNROLL
  for (int odd = 0; odd < 2; ++odd) {
    const __m256i index =
        _mm256_and_si256(odd == 0 ? packed : _mm256_srli_epi16(packed, 4), nibble);
    const __m256i low = _mm256_shuffle_epi8(values.low, index);
    const __m256i high = _mm256_shuffle_epi8(values.high, index);
    words[odd][0] = _mm256_unpacklo_epi8(low, high);
    words[odd][1] = _mm256_unpackhi_epi8(low, high);
  }
  MOESAIC_UNROLL
  for (int line = 0; line < 4; ++line) {
    const auto* const pair = reinterpret_cast<const double*>(row + 2 * line);
    const __m256 both = _mm256_castpd_ps(_mm256_broadcast_sd(pair));
    MOESAIC_UNROLL
    for (int i = 0; i < 2; ++i) {
      const __m256i word = words[line % 2][i];
      const __m256i bits = line < 2 ? _mm256_slli_epi32(word, 16) : _mm256_and_si256(word, upper);
      chains[i] = _mm256_fmadd_ps(both, scale(_mm256_castsi256_ps(bits), i), chains[i]);
    }
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
