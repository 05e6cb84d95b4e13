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

inline __mmask16 lanes_left(std::int64_t left) {
  return static_cast<__mmask16>(left >= 16 ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
}

template <typename Element>
TokenScale find_token_scale(const Element* source, std::int64_t depth) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < depth; k += 16) {
    const __m512i bits = load_bits(source + k, lanes_left(depth - k));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, magnitude));
  }
  return token_scale(_mm512_reduce_max_epu32(largest));
}

/// The codes of 16 elements, of which `left` are there; the others become 0.
template <typename Element>
__m128i quantize_16(const Element* source, std::int64_t left, __m512 inverse) {
  const __m512 values = _mm512_castsi512_ps(load_bits(source, lanes_left(left)));
  const __m512i codes = _mm512_cvt_roundps_epi32(_mm512_mul_ps(values, inverse),
                                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_cvtsepi32_epi8(codes);
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
    for (std::int64_t i = 0; i < 64; i += 16) {
      const __m128i codes =
          zeros ? _mm_setzero_si128() : quantize_16(source + k + i, depth - k - i, inverse);
      _mm_store_si128(reinterpret_cast<__m128i*>(out + i),
                      _mm_xor_si128(codes, _mm_set1_epi8(static_cast<char>(0x80))));
    }
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
