#pragma once

#include "kernels/cpu/avx512/decoders/words.h"
#include "kernels/formats/fp8_channel.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

class Fp8ChannelDecoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 512;

  Fp8ChannelDecoder(const PackedMatrix& matrix, std::int64_t panel) : codes_(matrix.panel(panel)) {}

  /// emit(line, 32 words) for the 16 lines of a step. The words are the e4m3 values / 256: exponent
  /// and mantissa moved to their places in bf16, and the exponent's offset put in front. Zeros and
  /// subnormals, which are rare, need another value there.
  template <typename Emit>
  [[gnu::always_inline]] void step(std::int64_t step, const Emit& emit) const {
    const std::byte* codes = codes_ + step * kStepBytes;
#pragma GCC unroll 8
    for (int pair = 0; pair < 8; ++pair) {
      const std::byte* at = codes + 64 * pair;
      const __m512i bytes = _mm512_loadu_si512(at);
      const __m512i first = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(bytes));
      const __m512i second = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(bytes, 1));
      __m512i low = place(first);
      __m512i high = place(second);
      if (_mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) != 0) [[unlikely]] {
        low = fix_subnormals(low, first);
        high = fix_subnormals(high, second);
      }
      emit(2 * pair, low);
      emit(2 * pair + 1, high);
    }
  }

 private:
  [[gnu::always_inline]] static __m512i place(__m512i codes) {
    constexpr int kAndOr = 0xea;
    return _mm512_ternarylogic_epi32(_mm512_slli_epi16(codes, 4),
                                     _mm512_set1_epi16(static_cast<short>(0x87f0)),
                                     _mm512_set1_epi16(0x3800), kAndOr);
  }
  /// place() read mantissa m of exponent 0 as (1 + m / 8) / 2^15; it stands for m / 2^17.
  [[gnu::always_inline]] static __m512i fix_subnormals(__m512i words, __m512i codes) {
    const __m512i values = _mm512_castsi128_si512(
        _mm_setr_epi16(0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860));
    const __mmask32 subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78));
    const __m512i magnitude =
        _mm512_permutexvar_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(7)), values);
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0x8000)));
    return _mm512_mask_mov_epi16(words, subnormal, _mm512_or_si512(magnitude, sign));
  }

  const std::byte* codes_;
};

END_TARGET

}  // namespace
}  // namespace moesaic
