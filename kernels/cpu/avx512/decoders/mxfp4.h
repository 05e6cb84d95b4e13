#pragma once

#include "kernels/cpu/avx512/decoders/e2m1.h"
#include "kernels/formats/mxfp4.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp4Decoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 256;

  Mxfp4Decoder(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)), scales_(codes_ + mxfp4_format::scales_offset(matrix.depth)) {}

  /// emit(line, 32 words) for the 8 lines of half a step.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) const {
    const std::byte* codes = codes_ + step * kStepBytes;
    const auto* scales = reinterpret_cast<const __m128i*>(scales_at(step));
    const E2m1Table table = power_table(_mm_loadu_si128(scales));
#pragma GCC unroll 2
    for (int v = 2 * half; v < 2 * half + 2; ++v) {
      decode_e2m1(codes + 64 * v, v, table, emit);
    }
  }

  static constexpr bool kHasFloats = true;
  /// emit(line, floats of even k, of odd k). No product with a power of two leaves the range of
  /// normal floats, though the power may.
  template <typename Emit>
  [[gnu::always_inline]] void float_step(std::int64_t step, const Emit& emit) const {
    const std::byte* codes = codes_ + step * kStepBytes;
    const auto* bytes = reinterpret_cast<const __m128i*>(scales_at(step));
    const __m512 exponents = _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes)), _mm512_set1_epi32(127)));
    const auto scale = [=](__m512 x) __attribute__((always_inline)) {
      return _mm512_scalef_ps(x, exponents);
    };
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) decode_e2m1_floats(codes + 64 * v, v, scale, emit);
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + step * 16;
  }

 private:
  /// Half the scale has exponent e - 1, which may wrap below zero: codes whose values would be
  /// subnormal are zero in the packed form, the others bring the exponent back into range.
  [[gnu::always_inline]] static E2m1Table power_table(__m128i exponents) {
    const __m512i half = _mm512_slli_epi32(
        _mm512_sub_epi32(_mm512_cvtepu8_epi32(exponents), _mm512_set1_epi32(1)), 7);
    const __m512i low = _mm512_and_si512(half, _mm512_set1_epi32(0xffff));
    return _mm512_or_si512(_mm512_or_si512(low, _mm512_set1_epi32(0x40)),
                           _mm512_slli_epi32(half, 16));
  }

  const std::byte* codes_;
  const std::byte* scales_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
