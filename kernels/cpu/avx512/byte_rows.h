#pragma once

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/row_layout.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Sums of a fused product by VPDPBUSD.
struct ByteRows {
  static constexpr std::size_t kStepBytes = 64;
  static std::size_t row_bytes(std::int64_t depth) { return byte_row_bytes(depth); }

  /// Few rows are fastest if the CPU's own prefetching is not overtaken.
  static constexpr std::int64_t ahead_bytes(std::size_t num_rows) {
    return num_rows <= 4 ? 512 : 4096;
  }

  /// Few rows have two chains of products, which do not wait for each other.
  template <std::size_t NumRows>
  struct Sum {
    static constexpr int kChains = NumRows <= 4 ? 2 : 1;
    __m512i sums[kChains];

    void begin_step() {}
    void add(const std::byte* row, int line, __m512i bytes) {
      const __m512i values = _mm512_set1_epi32(*reinterpret_cast<const int*>(row + line * 4));
      __m512i& sum = sums[line % kChains];
      sum = _mm512_dpbusd_epi32(sum, values, bytes);
    }
    void end_step() {}
    [[nodiscard]] __m512 result() const {
      return _mm512_castsi512_ps(kChains == 1 ? sums[0]
                                              : _mm512_add_epi32(sums[0], sums[kChains - 1]));
    }
  };
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
