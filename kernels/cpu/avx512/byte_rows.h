#pragma once

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/row_layout.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// Sums of a fused product by VPDPBUSD.
struct ByteRows {
  static constexpr std::size_t kStepBytes = 64;
  static std::size_t row_bytes(std::int64_t depth) { return byte_row_bytes(depth); }

  struct Sum {
    __m512i sum;

    void begin_step() {}
    void add(const std::byte* row, int line, __m512i bytes) {
      const __m512i values = _mm512_set1_epi32(*reinterpret_cast<const int*>(row + line * 4));
      sum = _mm512_dpbusd_epi32(sum, values, bytes);
    }
    void end_step() {}
    [[nodiscard]] __m512 result() const { return _mm512_castsi512_ps(sum); }
  };
};

END_TARGET

}  // namespace
}  // namespace moesaic
