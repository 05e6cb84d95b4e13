#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// e4m3 codes in the packed form of kernels/formats/e4m3_body.h as words of bf16: a table gives what
// the mantissa stands for, the exponent and the sign are added at their places. Internal to each
// kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Words for the mantissas 0 to 7: the low bytes, then the high bytes, the same in both lanes.
struct E4m3Tables {
  __m256i normal;     // those of exponent e lack e << 7
  __m256i subnormal;  // of exponent 0
};

/// The first of eight words, which stands for mantissa 0, replaced by zero.
inline __m256i without_first(__m256i words) {
  return _mm256_blend_epi32(words, _mm256_setzero_si256(), 1);
}

/// Eight words, the lower 16 bits of 32, as one half of E4m3Tables.
inline __m256i make_table(__m256i words) {
  const __m256i bytes = _mm256_shuffle_epi8(
      words, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13, -1, -1, -1, -1,  //
                              -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13));
  return _mm256_or_si256(bytes, _mm256_permute2x128_si256(bytes, bytes, 1));
}

/// What subnormal code m, m / 2^9, has in place of the mantissa bits of a normal one, 2^-7 times 1
/// to 2: its exponent is -2, -1 or 0.
inline __m256i subnormal_words() {
  return _mm256_setr_epi32(0, -0x100, -0x80, -0x80 + 0x40, 0, 0x20, 0x40, 0x60);
}
/// The bits of mantissas at their place in bf16.
inline __m256i mantissa_words() {
  return _mm256_setr_epi32(0, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70);
}

/// Eight columns of a pair of lines from their 32 bytes: each code twice in a word.
struct E4m3Pair {
  __m256i lines[2];
};
inline E4m3Pair load_e4m3(const std::byte* codes) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  return {{_mm256_unpacklo_epi8(bytes, bytes), _mm256_unpackhi_epi8(bytes, bytes)}};
}

[[gnu::always_inline]] inline __m256i decode_e4m3(__m256i codes, const E4m3Tables& tables) {
  const __m256i mantissa = _mm256_and_si256(codes, _mm256_set1_epi16(0x0707));
  const __m256i index = _mm256_or_si256(mantissa, _mm256_set1_epi16(0x0800));
  const __m256i exponent = _mm256_and_si256(codes, _mm256_set1_epi16(0x78));
  const __m256i normal =
      _mm256_add_epi16(_mm256_shuffle_epi8(tables.normal, index), _mm256_slli_epi16(exponent, 4));
  const __m256i magnitude =
      _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(tables.subnormal, index),
                         _mm256_cmpeq_epi16(exponent, _mm256_setzero_si256()));
  const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi16(static_cast<short>(0x8000)));
  return _mm256_xor_si256(magnitude, sign);
}

/// A step whose words are those of the tables.
[[gnu::always_inline]] inline void decode_e4m3_step(const std::byte* codes,
                                                    const E4m3Tables& tables, std::byte* out) {
  for (std::int64_t i = 0; i < 16; ++i) {  // pairs of lines, left and right half
    const E4m3Pair pair = load_e4m3(codes + 32 * i);
    for (std::int64_t line = 0; line < 2; ++line) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + i / 2 * 128 + line * 64 + i % 2 * 32),
                         decode_e4m3(pair.lines[line], tables));
    }
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
