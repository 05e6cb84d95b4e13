#pragma once

#include "kernels/cpu/avx512/decoders/e4m3.h"
#include "kernels/formats/fp8_block.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// A block has one scale for all of a panel's columns, so that a code's product with it, rounded to
/// bf16, comes from a table that is made once for a block: by the mantissa and two bits of the
/// exponent, to which the other two are added, since powers of two change no rounding. Zeros and
/// subnormals are rare. Scales so large or small that products leave the range of normal numbers
/// have a table of all 128 magnitudes.
class Fp8BlockDecoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 512;

  Fp8BlockDecoder(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)),
        scales_(
            reinterpret_cast<const float*>(codes_ + fp8_block_format::scales_offset(matrix.depth))),
        steps_per_block_(matrix.layout.group / kStepDepth) {}

  /// emit(line, 32 words) for the 8 lines of half a step.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) {
    if (step >= block_end_) make_table(step);
    if (is_plain_) [[likely]] {
      add_exponents(codes_ + step * kStepBytes, half, emit);
      return;
    }
    const auto look_up = [&](int line, __m512i codes) __attribute__((always_inline)) {
      const __m512i low = _mm512_permutex2var_epi16(table_[0], codes, table_[1]);  // by six bits
      const __m512i high = _mm512_permutex2var_epi16(table_[2], codes, table_[3]);
      const __mmask32 upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
      constexpr int kAndOr = 0xea;
      emit(line, _mm512_ternarylogic_epi32(codes, _mm512_set1_epi16(static_cast<short>(0x8000)),
                                           _mm512_mask_mov_epi16(low, upper, high), kAndOr));
    };
    for_each_e4m3_line(codes_ + step * kStepBytes, half, look_up);
  }

  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return reinterpret_cast<const std::byte*>(scales_ + step / steps_per_block_);
  }

 private:
  template <typename Emit>
  [[gnu::always_inline]] void add_exponents(const std::byte* codes, int half, const Emit& emit) {
    constexpr int kAndOr = 0xea;
    const __m512i sign_bit = _mm512_set1_epi16(static_cast<short>(0x8000));
#pragma GCC unroll 4
    for (int pair = 4 * half; pair < 4 * half + 4; ++pair) {
      const __m512i bytes = _mm512_loadu_si512(codes + 64 * pair);
      const bool all_normal = _mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) == 0;
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m512i words = e4m3_words(bytes, i);
        const __m512i exponents =
            _mm512_and_si512(_mm512_slli_epi16(words, 4), _mm512_set1_epi16(0x0600));
        __m512i values =
            _mm512_add_epi16(_mm512_permutexvar_epi16(words, normal_),
                             _mm512_ternarylogic_epi32(words, sign_bit, exponents, kAndOr));
        if (!all_normal) [[unlikely]] {
          const __mmask32 small = _mm512_testn_epi16_mask(words, _mm512_set1_epi16(0x78));
          values = _mm512_mask_add_epi16(values, small, _mm512_permutexvar_epi16(words, table_[0]),
                                         _mm512_and_si512(words, sign_bit));
        }
        emit(2 * pair + i, values);
      }
    }
  }

  [[gnu::always_inline]] void make_table(std::int64_t step) {
    const std::int64_t block = step / steps_per_block_;
    block_end_ = (block + 1) * steps_per_block_;
    const __m512 scale = _mm512_set1_ps(scales_[block]);
    __m128i code = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 values[8];
#pragma GCC unroll 8
    for (__m512& value : values) {
      value = _mm512_mul_ps(e4m3_to_floats(code), scale);
      code = _mm_add_epi8(code, _mm_set1_epi8(16));
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      table_[i] = round_to_words(values[2 * i], values[2 * i + 1]);
    }
    // Codes 32 to 39 have the mantissas of 0 to 7 and an exponent that is not 0, but 4.
    const __m512i first = _mm512_sub_epi16(table_[1], _mm512_set1_epi16(4 << 7));
    normal_ = _mm512_mask_mov_epi16(table_[0], 0xff, first);
    is_plain_ = scales_[block] >= 0x1p-60F && scales_[block] <= 0x1p60F;
  }

  const std::byte* codes_;
  const float* scales_;
  std::int64_t steps_per_block_;
  std::int64_t block_end_ = 0;
  __m512i table_[4]{};  // of the 128 magnitudes
  __m512i normal_{};    // of the lower five bits, as if no exponent were 0
  bool is_plain_ = false;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
