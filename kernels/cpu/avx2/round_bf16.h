#pragma once

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Eight floats, no NaN among them, rounded to nearest even; their bf16 is the upper half of each
/// word, the lower half is left over.
inline __m256i round_to_bf16(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
