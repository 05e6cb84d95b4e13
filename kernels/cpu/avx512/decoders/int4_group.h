#pragma once

#include "kernels/cpu/avx512/decoders/int4_panel.h"
#include "kernels/cpu/avx512/decoders/words.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// (code - zero) * scale, rounded to bf16: as (code - 8) * scale + (8 - zero) * scale, whose parts
/// and sum are exact, since scales have 16 significant bits.
class Int4GroupDecoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 256;

  Int4GroupDecoder(const PackedMatrix& matrix, std::int64_t panel)
      : panel_(matrix, panel), steps_per_group_(matrix.layout.group / kStepDepth) {}

  /// emit(line, 32 words) for the 8 lines of half a step.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) {
    if (step >= group_end_) read_scales(step);
    const auto emit_words = [&](int line, __m512 low, __m512 high) __attribute__((always_inline)) {
      emit(line, round_to_words(low, high));
    };
    decode_half(step, half, emit_words);
  }

  static constexpr bool kHasPairs = true;
  /// emit(line, floats of columns 0 to 7, of 8 to 15), each column's even k before its odd one.
  template <typename Emit>
  [[gnu::always_inline]] void float_step(std::int64_t step, const Emit& emit) {
    if (step >= group_end_) read_scales(step);
    if (is_large_) [[unlikely]] {
      emit_floats<round_floats>(step, emit);
    } else {
      emit_floats<round_small_floats>(step, emit);
    }
  }

  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return panel_.scales_at(step / steps_per_group_);
  }

 private:
  /// Floats of at most this are rounded without overflow.
  static constexpr float kSmall = 0x1p+110F;

  template <__m512 (*round)(__m512), typename Emit>
  [[gnu::always_inline]] void emit_floats(std::int64_t step, const Emit& emit) const {
    const auto emit_rounded = [&](int line, __m512 low, __m512 high)
        __attribute__((always_inline)) {
      emit(line, round(low), round(high));
    };
    decode_half(step, 0, emit_rounded);
    decode_half(step, 1, emit_rounded);
  }

  /// emit(line, low, high) as that of float_step(), before they are rounded.
  template <typename Emit>
  [[gnu::always_inline]] void decode_half(std::int64_t step, int half, const Emit& emit) const {
    const std::byte* codes = panel_.codes(step) + 128 * half;
    const __m512 integers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512i left = _mm512_loadu_si512(codes);
    __m512i right = _mm512_loadu_si512(codes + 64);
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) {
      const __m512 low = _mm512_permutexvar_ps(left, integers);  // indexed by the low four bits
      const __m512 high = _mm512_permutexvar_ps(right, integers);
      emit(8 * half + r, _mm512_fmadd_ps(low, factors_[0], offsets_[0]),
           _mm512_fmadd_ps(high, factors_[1], offsets_[1]));
      left = _mm512_srli_epi32(left, 4);
      right = _mm512_srli_epi32(right, 4);
    }
  }

  /// Of the group of `step`, twice for each column: columns 0 to 7, 8 to 15.
  [[gnu::always_inline]] void read_scales(std::int64_t step) {
    const std::int64_t group = step / steps_per_group_;
    group_end_ = (group + 1) * steps_per_group_;
    const __m512 factors = panel_.scales(group);
    const __m512i eight = _mm512_set1_epi32(int4_group_format::kCompactZero);
    const __m512i differences = _mm512_sub_epi32(eight, panel_.zeros(group));
    const __m512 offsets = _mm512_mul_ps(_mm512_cvtepi32_ps(differences), factors);
    const __m512i left = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i right = _mm512_add_epi32(left, _mm512_set1_epi32(8));
    factors_[0] = _mm512_permutexvar_ps(left, factors);
    factors_[1] = _mm512_permutexvar_ps(right, factors);
    offsets_[0] = _mm512_permutexvar_ps(left, offsets);
    offsets_[1] = _mm512_permutexvar_ps(right, offsets);
    // 15 is the largest difference of a code and a zero point.
    const __m512 limit = _mm512_set1_ps(kSmall / 16);
    is_large_ = _mm512_cmp_ps_mask(_mm512_abs_ps(factors), limit, _CMP_GT_OQ) != 0;
  }

  Int4Panel panel_;
  std::int64_t steps_per_group_;
  std::int64_t group_end_ = 0;
  __m512 factors_[2]{};
  __m512 offsets_[2]{};
  bool is_large_ = false;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
