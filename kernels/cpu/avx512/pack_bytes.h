#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/token_scale.h"

// How the int8 kernels that need AVX-512 bring rows into their packed form: int8 + 128, and a scale
// a row. Internal to each of them.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

inline TokenScale find_token_scale(const float* source, std::int64_t depth) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < depth; k += 16) {
    const __m512i bits = load_bits(source + k, first_lanes(depth - k));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, magnitude));
  }
  return token_scale(_mm512_reduce_max_epu32(largest));
}

inline TokenScale find_token_scale(const BFloat16* source, std::int64_t depth) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < depth; k += 32) {
    const std::int64_t left = depth - k;
    const auto mask = static_cast<__mmask32>(left >= 32 ? ~0U : (1U << left) - 1);
    const __m512i words = _mm512_maskz_loadu_epi16(mask, source + k);
    largest = _mm512_max_epu16(largest, _mm512_and_si512(words, magnitude));
  }
  const __m512i odd = _mm512_and_si512(largest, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
  return token_scale(
      _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_slli_epi32(largest, 16), odd)));
}

/// The codes of 16 elements as int32; elements that the mask lacks become 0.
template <typename Element>
__m512i codes_of(const Element* source, __mmask16 mask, __m512 inverse) {
  const __m512 values = _mm512_castsi512_ps(load_bits(source, mask));
  return _mm512_cvt_roundps_epi32(_mm512_mul_ps(values, inverse),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/// The codes of 64 elements, of which `left` are there; the others become 0.
template <typename Element>
__m512i quantize_64(const Element* source, std::int64_t left, __m512 inverse) {
  __m512i codes[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    codes[i] = codes_of(source + 16 * i, first_lanes(left - 16 * i), inverse);
  }
  // Packing works in lanes of 128 bits: dword 4 l + i has codes 4 l to 4 l + 3 of codes[i].
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(codes[0], codes[1]),
                                            _mm512_packs_epi32(codes[2], codes[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, packed);
}

/// Codes + 128 of one row, 64 bytes a step, `step_stride` bytes apart. Returns the row's scale.
template <typename Element>
float pack_byte_row(const Element* source, std::int64_t depth, std::byte* out,
                    std::size_t step_stride) {
  const TokenScale token = find_token_scale(source, depth);
  const __m512 inverse = _mm512_set1_ps(token.inverse);
  // Infinity times 0 would be the code of NaN; such rows have codes 0.
  const bool zeros = token.inverse == 0;
  for (std::int64_t k = 0; k < round_up(depth, kIntStepDepth); k += 64, out += step_stride) {
    const __m512i codes =
        zeros ? _mm512_setzero_si512() : quantize_64(source + k, depth - k, inverse);
    _mm512_store_si512(out, _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80))));
  }
  return token.scale;
}

inline float pack_byte_row(const RowSource& source, std::int64_t row, std::byte* out,
                           std::size_t step_stride) {
  if (source.element == RowSource::Element::f32) {
    return pack_byte_row(reinterpret_cast<const float*>(source.rows[row]), source.depth, out,
                         step_stride);
  }
  return pack_byte_row(reinterpret_cast<const BFloat16*>(source.rows[row]), source.depth, out,
                       step_stride);
}

/// Results of int32 sums of (code + 128) * weight code, in place: float(sum - offset) * the
/// column's scale * the row's.
inline void finish_row(float* out, const std::byte* trailer, float row_scale) {
  const __m512i offsets = _mm512_loadu_si512(trailer + 64);
  const __m512i sums = _mm512_sub_epi32(_mm512_loadu_si512(out), offsets);
  const __m512 scales = _mm512_loadu_ps(trailer);
  const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scales);
  _mm512_storeu_ps(out, _mm512_mul_ps(scaled, _mm512_set1_ps(row_scale)));
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
