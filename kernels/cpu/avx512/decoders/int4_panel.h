#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/target.h"
#include "kernels/formats/int4_group.h"
#include "kernels/packed_matrix.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Codes, scales and zero points of a panel of int4_group.
class Int4Panel {
 public:
  Int4Panel(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)),
        scales_(codes_ + int4_group_format::scales_offset(matrix.depth)),
        wide_(matrix.layout.wide_scales) {}

  [[nodiscard]] const std::byte* codes(std::int64_t step) const {
    return codes_ + step * int4_group_format::kStepBytes;
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t group) const {
    return scales_ + group * (wide_ ? 64 : 32);
  }
  [[nodiscard]] __m512 scales(std::int64_t group) const {
    if (wide_) {
      return _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(0xff), words(group)));
    }
    const auto* narrow = reinterpret_cast<const __m256i*>(scales_at(group));
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(narrow));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  }
  [[nodiscard]] __m512i zeros(std::int64_t group) const {
    return wide_ ? _mm512_and_si512(words(group), _mm512_set1_epi32(0xff))
                 : _mm512_set1_epi32(int4_group_format::kCompactZero);
  }

 private:
  [[nodiscard]] __m512i words(std::int64_t group) const {
    return _mm512_loadu_si512(scales_at(group));
  }

  const std::byte* codes_;
  const std::byte* scales_;
  bool wide_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
