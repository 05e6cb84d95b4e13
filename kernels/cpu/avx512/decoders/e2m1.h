#pragma once

#include "kernels/cpu/avx512/decoders/words.h"

// e2m1 codes in the packed form of kernels/formats/e2m1_body.h: a line's 32 codes are made bf16 by
// one table look-up, which gives 1 or 1.5 times half the column's scale, and one addition to the
// exponent and the sign.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Of 16 columns: word 2 c is 0.75, word 2 c + 1 is 0.5 times the scale of column c, as bf16.
using E2m1Table = __m512i;

inline E2m1Table e2m1_table(__m512 scales) {
  const __m512i even = _mm512_castps_si512(_mm512_mul_ps(scales, _mm512_set1_ps(0.75F)));
  const __m512i odd = _mm512_castps_si512(_mm512_mul_ps(scales, _mm512_set1_ps(0.5F)));
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(even, 16), odd);
}

/// Lines 4 v to 4 v + 3 of a step from their 64 bytes: emit(line, words).
template <typename Emit>
[[gnu::always_inline]] inline void decode_e2m1(const std::byte* at, int v, E2m1Table table,
                                               const Emit& emit) {
  // 0, 0, 2, 2, 4, 4, ...: the table entry of each word's column.
  const __m512i columns = _mm512_setr_epi32(0x00000, 0x20002, 0x40004, 0x60006, 0x80008, 0xa000a,
                                            0xc000c, 0xe000e, 0x100010, 0x120012, 0x140014,
                                            0x160016, 0x180018, 0x1a001a, 0x1c001c, 0x1e001e);
  // Of a code: its exponent and its sign where bf16 has them. The look-up takes five bits.
  const __m512i exponents_and_signs = _mm512_set4_epi64(static_cast<long long>(0x8180818081008100),
                                                        static_cast<long long>(0x8080808080008000),
                                                        0x0180018001000100, 0x0080008000000000);
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i packed = _mm512_loadu_si512(at);
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const __m512i words =
        r == 0 ? packed : _mm512_srli_epi16(packed, 4U * static_cast<unsigned>(r));
    const __m512i index = _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(1), columns, kAndOr);
    const __m512i base = _mm512_permutexvar_epi16(index, table);
    const __m512i offset = _mm512_permutexvar_epi16(words, exponents_and_signs);
    const __mmask32 nonzero = _mm512_test_epi16_mask(words, _mm512_set1_epi16(7));
    emit(4 * v + r, _mm512_maskz_add_epi16(nonzero, base, offset));
  }
}

/// The same lines as floats: emit(line, even k, odd k) of 16 columns, each as `scale` returns it
/// for the values of codes. An instruction less than words that are then taken apart.
template <typename Scale, typename Emit>
[[gnu::always_inline]] inline void decode_e2m1_floats(const std::byte* at, int v,
                                                      const Scale& scale, const Emit& emit) {
  const __m512 values = _mm512_setr_ps(0, 0.5F, 1.5F, 1, 3, 2, 6, 4, 0, -0.5F, -1.5F, -1, -3, -2,
                                       -6, -4);  // by the low four bits
  const __m512i packed = _mm512_loadu_si512(at);
#pragma GCC unroll 4
  for (unsigned r = 0; r < 4; ++r) {
    const __m512 even = _mm512_permutexvar_ps(_mm512_srli_epi32(packed, 4 * r), values);
    const __m512 odd = _mm512_permutexvar_ps(_mm512_srli_epi32(packed, 16 + 4 * r), values);
    emit(4 * v + static_cast<int>(r), scale(even), scale(odd));
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
