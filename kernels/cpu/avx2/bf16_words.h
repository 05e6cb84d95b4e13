#pragma once

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma")

/// Eight floats, no NaN among them, rounded to bf16 (nearest, even at ties): the lower 16 of 32
/// bits.
inline __m256i round_to_upper(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
}

END_TARGET

}  // namespace
}  // namespace moesaic
