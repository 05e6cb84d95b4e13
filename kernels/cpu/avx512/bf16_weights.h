#pragma once

#include "kernels/cpu/attention_bf16.h"

// Weights of attention as bf16, by the instructions that round.

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)
namespace moesaic {
namespace {

/// A row's weights; kStepBytes from one step of 32 keys to the next.
template <std::int64_t kStepBytes>
struct Bf16WeightRow {
  std::byte* at;

  /// The instruction flushes subnormal numbers, of which weights have none.
  Lanes put(std::int64_t key, Lanes low, Lanes high) const {
    const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(high.v, low.v);
    _mm512_storeu_si512(at + key * (kStepBytes / kStepDepth), rounded);
    const __m512i odd_mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    return {_mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(rounded, 16)),
                          _mm512_castsi512_ps(_mm512_and_si512(rounded, odd_mask)))};
  }
};

}  // namespace
}  // namespace moesaic
MOESAIC_END_TARGET
