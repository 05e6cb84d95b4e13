#pragma once

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// VPMADDWD and VPMADDUBSW add two products, but not to a sum: that is a second instruction. The
// empty asm puts it right behind the first. Without it g++ computes all products of a loop's body
// before it adds them, and sums for which 16 registers have no room then are in memory: products
// took 1.5 times as long.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Adds products of signed words, two of them, to each of 8 sums.
[[gnu::always_inline]] inline void add_word_products(__m256i& sums, __m256i a, __m256i b) {
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
  asm("" : "+x"(sums));
}

/// Adds products of unsigned and signed bytes, two of them, to each of 16 sums.
[[gnu::always_inline]] inline void add_byte_products(__m256i& sums, __m256i unsigned_bytes,
                                                     __m256i signed_bytes) {
  sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(unsigned_bytes, signed_bytes));
  asm("" : "+x"(sums));
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
