#pragma once

#include <cstring>

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/row_layout.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Fused products in the tile order, of rows packed as floats.
struct FmaRows {
  static constexpr std::size_t kStepBytes = kStepDepth * 4;
  static std::size_t row_bytes(std::int64_t depth) { return float_row_bytes(depth); }
  static constexpr bool kTakesFloats = true;
  static constexpr std::int64_t ahead_bytes(std::size_t /*num_rows*/) { return 8192; }

  template <std::size_t /*NumRows*/>
  struct Sum {
    __m512 sum;
    __m512 evens;
    __m512 odds;

    void begin_step() { evens = odds = _mm512_setzero_ps(); }
    void add(const std::byte* row, int line, __m512i words) {
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
      add_floats(row, line, _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
                 _mm512_castsi512_ps(_mm512_and_si512(words, mask)));
    }
    void add_floats(const std::byte* row, int line, __m512 even, __m512 odd) {
      const float* pair = reinterpret_cast<const float*>(row) + 2 * line;
      evens = _mm512_fmadd_ps(_mm512_set1_ps(pair[0]), even, evens);
      odds = _mm512_fmadd_ps(_mm512_set1_ps(pair[1]), odd, odds);
    }
    /// Meanwhile `evens` are the sums of columns 0 to 7, `odds` of the others, in pairs.
    void add_pairs(const std::byte* row, int line, __m512 low, __m512 high) {
      double pair = 0;
      std::memcpy(&pair, row + 8 * line, sizeof pair);
      const __m512 both = _mm512_castpd_ps(_mm512_set1_pd(pair));
      evens = _mm512_fmadd_ps(both, low, evens);
      odds = _mm512_fmadd_ps(both, high, odds);
    }
    void part_pairs() {
      const __m512i even =
          _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
      const __m512 low = evens;
      evens = _mm512_permutex2var_ps(low, even, odds);
      odds = _mm512_permutex2var_ps(low, odd, odds);
    }
    void end_step() { sum = _mm512_add_ps(sum, _mm512_add_ps(evens, odds)); }
    [[nodiscard]] __m512 result() const { return sum; }
  };
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
