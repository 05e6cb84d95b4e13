#pragma once

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/row_layout.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// A row's values of one pair of k, in every lane.
struct PairOfFloats {  // packed as floats
  static constexpr std::size_t kPairBytes = 8;
  static std::size_t row_bytes(std::int64_t depth) { return float_row_bytes(depth); }
  static __m512 even(const std::byte* at) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(at));
  }
  static __m512 odd(const std::byte* at) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(at + 4));
  }
};
struct PairOfWords {  // packed as bf16, one row without gaps
  static constexpr std::size_t kPairBytes = 4;
  static std::size_t row_bytes(std::int64_t) { return 0; }
  static __m512i pair(const std::byte* at) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(at));
  }
  static __m512 even(const std::byte* at) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pair(at), 16));
  }
  static __m512 odd(const std::byte* at) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    return _mm512_castsi512_ps(_mm512_and_si512(pair(at), mask));
  }
};

/// Sums of a fused product in the tile order.
template <typename Pair>
struct FmaRows {
  static constexpr std::size_t kStepBytes = 16 * Pair::kPairBytes;
  static std::size_t row_bytes(std::int64_t depth) { return Pair::row_bytes(depth); }
  /// The sums of two panels do not wait for each other.
  static constexpr std::size_t panels(std::size_t num_rows) { return num_rows <= 4 ? 2 : 1; }
  static constexpr std::int64_t ahead_bytes(std::size_t /*num_rows*/) { return 8192; }

  template <std::size_t /*NumRows*/>
  struct Sum {
    __m512 sum;
    __m512 evens;
    __m512 odds;

    void begin_step() { evens = odds = _mm512_setzero_ps(); }
    void add(const std::byte* row, int line, __m512i words) {
      const std::byte* at = row + static_cast<std::size_t>(line) * Pair::kPairBytes;
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
      const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
      const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(words, mask));
      evens = _mm512_fmadd_ps(Pair::even(at), even, evens);
      odds = _mm512_fmadd_ps(Pair::odd(at), odd, odds);
    }
    void end_step() { sum = _mm512_add_ps(sum, _mm512_add_ps(evens, odds)); }
    [[nodiscard]] __m512 result() const { return sum; }
  };
};

END_TARGET

}  // namespace
}  // namespace moesaic
