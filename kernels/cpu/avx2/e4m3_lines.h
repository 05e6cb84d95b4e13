#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"
#include "kernels/formats/e4m3_body.h"

// e4m3 codes in the packed form of kernels/formats/e4m3_body.h as words of bf16: a table gives what
// the mantissa stands for, the exponent and the sign are added at their places. Internal to each
// kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Words by what stands for a code's mantissa, the same in both lanes: 0 to 7 those of codes 0 to
/// 7, which are subnormal; 8 to 15 of others, which lack their exponent e << 7.
struct E4m3Tables {
  __m256i low;  // bytes of the words
  __m256i high;
};

/// The first of eight words, which stands for mantissa 0, replaced by zero.
inline __m256i without_first(__m256i words) {
  return _mm256_blend_epi32(words, _mm256_setzero_si256(), 1);
}

/// Of eight words, the lower 16 bits of 32: low bytes, then high bytes, the same in both lanes.
inline __m256i part_bytes(__m256i words) {
  const __m256i bytes = _mm256_shuffle_epi8(
      words, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13, -1, -1, -1, -1,  //
                              -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13));
  return _mm256_or_si256(bytes, _mm256_permute2x128_si256(bytes, bytes, 1));
}
inline E4m3Tables make_tables(__m256i subnormal, __m256i normal) {
  const __m256i first = part_bytes(subnormal);
  const __m256i second = part_bytes(normal);
  return {_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second)};
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

/// Eight columns of a pair of lines, as words of bf16.
struct E4m3Pair {
  __m256i lines[2];
};
/// From their 32 bytes.
[[gnu::always_inline]] inline E4m3Pair decode_e4m3(const std::byte* from,
                                                   const E4m3Tables& tables) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
  const __m256i mantissa = _mm256_and_si256(codes, _mm256_set1_epi8(7));
  // A look-up takes the lowest four bits.
  const __m256i index = _mm256_min_epu8(magnitude, _mm256_or_si256(mantissa, _mm256_set1_epi8(8)));
  const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
  const __m256i low = _mm256_shuffle_epi8(tables.low, index);
  const __m256i high = _mm256_xor_si256(_mm256_shuffle_epi8(tables.high, index), sign);
  const __m256i exponent = _mm256_and_si256(codes, _mm256_set1_epi8(0x78));
  const __m256i zero = _mm256_setzero_si256();
  return {{_mm256_add_epi16(_mm256_unpacklo_epi8(low, high),
                            _mm256_srli_epi16(_mm256_unpacklo_epi8(zero, exponent), 4)),
           _mm256_add_epi16(_mm256_unpackhi_epi8(low, high),
                            _mm256_srli_epi16(_mm256_unpackhi_epi8(zero, exponent), 4))}};
}

/// Words that need nothing more.
struct AsDecoded {
  __m256i operator()(__m256i words, int /*side*/) const { return words; }
};

/// A step; `finish` is told which columns words are of: side 0 or 1, the left eight or the right.
template <typename Finish>
[[gnu::always_inline]] inline void decode_e4m3_step(const std::byte* codes,
                                                    const E4m3Tables& tables, std::byte* out,
                                                    const Finish& finish) {
  for (int pair = 0; pair < 8; ++pair, codes += 64, out += 128) {
    MOESAIC_UNROLL
    for (int side = 0; side < 2; ++side) {
      const E4m3Pair words = decode_e4m3(codes + 32 * side, tables);
      MOESAIC_UNROLL
      for (int line = 0; line < 2; ++line) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + 64 * line + 32 * side),
                           finish(words.lines[line], side));
      }
    }
  }
}

/// A step times a row's values: chains of even and odd k, left and right.
template <typename Finish>
[[gnu::always_inline]] inline void sum_e4m3_step(const std::byte* codes, const E4m3Tables& tables,
                                                 const float* row, __m256 (&chains)[4],
                                                 const Finish& finish) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  for (int pair = 0; pair < 8; ++pair, codes += 64, row += 4) {
    MOESAIC_UNROLL
    for (int side = 0; side < 2; ++side) {
      const E4m3Pair pairs = decode_e4m3(codes + 32 * side, tables);
      MOESAIC_UNROLL
      for (int line = 0; line < 2; ++line) {
        const __m256i words = finish(pairs.lines[line], side);
        const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
        const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(words, upper));
        __m256& evens = chains[2 * side];
        __m256& odds = chains[2 * side + 1];
        evens = _mm256_fmadd_ps(_mm256_broadcast_ss(row + 2 * line), even, evens);
        odds = _mm256_fmadd_ps(_mm256_broadcast_ss(row + 2 * line + 1), odd, odds);
      }
    }
  }
}

/// What decoders of kernels/cpu/avx2/one_row.h have in common.
struct E4m3RowDecoder {
  static constexpr std::int64_t kStepBytes = e4m3_body::kStepBytes;

  [[gnu::always_inline]] static __m256 join(__m256 even, __m256 odd) {
    return _mm256_add_ps(even, odd);
  }
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
