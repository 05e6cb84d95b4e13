#pragma once

#include "kernels/cpu/avx2/pack_rows.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma")

/// 16 floats rounded to bf16, `low` first.
inline __m256i round_to_words(__m256 low, __m256 high) {
  const __m256i first = _mm256_srli_epi32(round_bits(_mm256_castps_si256(low)), 16);
  const __m256i second = _mm256_srli_epi32(round_bits(_mm256_castps_si256(high)), 16);
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
}

END_TARGET

}  // namespace
}  // namespace moesaic
