#pragma once

#include <cstddef>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"
#include "kernels/formats/int4_group.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Scales and zero points of eight columns.
struct Int4Columns {
  __m256 scale;
  __m256i zero;
};

inline Int4Columns load_int4_columns(const Layout& layout, const std::byte* scales) {
  if (layout.wide_scales) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
    const __m256i low_byte = _mm256_set1_epi32(0xff);
    return {_mm256_castsi256_ps(_mm256_andnot_si256(low_byte, words)),
            _mm256_and_si256(words, low_byte)};
  }
  const __m256i words =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)),
          _mm256_set1_epi32(int4_group_format::kCompactZero)};
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
