#pragma once

#include "kernels/cpu/avx512/decoders/words.h"
#include "kernels/formats/int4_group.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// (code - zero) * scale, rounded to bf16: as (code - 8) * scale + (8 - zero) * scale, whose parts
/// and sum are exact, since scales have 16 significant bits.
class Int4GroupDecoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 256;

  Int4GroupDecoder(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)),
        scales_(codes_ + int4_group_format::scales_offset(matrix.depth)),
        steps_per_group_(matrix.layout.group / kStepDepth),
        wide_(matrix.layout.wide_scales) {}

  /// emit(line, 32 words) for the 16 lines of a step.
  template <typename Emit>
  [[gnu::always_inline]] void step(std::int64_t step, const Emit& emit) {
    if (step >= group_end_) read_scales(step);
    const std::byte* codes = codes_ + step * kStepBytes;
    const __m512 integers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512i left = _mm512_loadu_si512(codes + 128 * half);
      __m512i right = _mm512_loadu_si512(codes + 128 * half + 64);
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) {
        const __m512 low = _mm512_permutexvar_ps(left, integers);  // indexed by the low four bits
        const __m512 high = _mm512_permutexvar_ps(right, integers);
        emit(8 * half + r, round_to_words(_mm512_fmadd_ps(low, factors_[0], offsets_[0]),
                                          _mm512_fmadd_ps(high, factors_[1], offsets_[1])));
        left = _mm512_srli_epi32(left, 4);
        right = _mm512_srli_epi32(right, 4);
      }
    }
  }

  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + step / steps_per_group_ * (wide_ ? 64 : 32);
  }

 private:
  /// Of the group of `step`, twice for each column: columns 0 to 7, 8 to 15.
  [[gnu::always_inline]] void read_scales(std::int64_t step) {
    const std::int64_t group = step / steps_per_group_;
    group_end_ = (group + 1) * steps_per_group_;
    __m512i factors;
    __m512 zeros = _mm512_set1_ps(8);
    if (wide_) {
      const __m512i words = _mm512_loadu_si512(scales_ + group * 64);
      factors = _mm512_andnot_si512(_mm512_set1_epi32(0xff), words);
      zeros = _mm512_cvtepi32_ps(_mm512_and_si512(words, _mm512_set1_epi32(0xff)));
    } else {
      const auto* words = reinterpret_cast<const __m256i*>(scales_ + group * 32);
      factors = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(words)), 16);
    }
    const __m512 offsets =
        _mm512_mul_ps(_mm512_sub_ps(_mm512_set1_ps(8), zeros), _mm512_castsi512_ps(factors));
    const __m512i left = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i right = _mm512_add_epi32(left, _mm512_set1_epi32(8));
    factors_[0] = _mm512_permutexvar_ps(left, _mm512_castsi512_ps(factors));
    factors_[1] = _mm512_permutexvar_ps(right, _mm512_castsi512_ps(factors));
    offsets_[0] = _mm512_permutexvar_ps(left, offsets);
    offsets_[1] = _mm512_permutexvar_ps(right, offsets);
  }

  const std::byte* codes_;
  const std::byte* scales_;
  std::int64_t steps_per_group_;
  bool wide_;
  std::int64_t group_end_ = 0;
  __m512 factors_[2]{};
  __m512 offsets_[2]{};
};

END_TARGET

}  // namespace
}  // namespace moesaic
