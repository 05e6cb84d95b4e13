#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/target_region.h"
#include "kernels/gemm_kernel.h"

// How the AVX2 kernels bring rows into their packed form. Internal to each of them.

namespace moesaic {
namespace {

enum class RowForm { floats, rounded_floats };

MOESAIC_BEGIN_TARGET("avx2,fma")

inline __m256i load_bits(const float* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline __m256i load_bits(const BFloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
}

/// to_bfloat16 as a float's bits.
inline __m256i round_bits(__m256i bits) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  return _mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, nan),
                          _mm256_set1_epi32(static_cast<int>(0xffff0000U)));
}

template <RowForm Form, typename Element>
void pack_row(const Element* source, std::int64_t depth, std::byte* out) {
  for (std::int64_t k = 0; k < round_up(depth, kStepDepth); k += 8) {
    Element tail[8] = {};
    const Element* from = source + k;
    if (k + 8 > depth) {
      if (k < depth) std::copy(from, source + depth, tail);
      from = tail;
    }
    __m256i bits = load_bits(from);
    if constexpr (Form == RowForm::rounded_floats && sizeof(Element) == 4) bits = round_bits(bits);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + k * 4), bits);
  }
}

template <RowForm Form>
void pack_rows(const RowSource& source, std::byte* out) noexcept {
  for (std::int64_t i = 0; i < source.num_rows; ++i, out += float_row_bytes(source.depth)) {
    if (source.element == RowSource::Element::f32) {
      pack_row<Form>(reinterpret_cast<const float*>(source.rows[i]), source.depth, out);
    } else {
      pack_row<Form>(reinterpret_cast<const BFloat16*>(source.rows[i]), source.depth, out);
    }
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
