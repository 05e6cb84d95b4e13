#pragma once

#include "kernels/cpu/avx512/decoders/e4m3.h"
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
    const auto decode = [&](int line, __m512i codes, bool rare) __attribute__((always_inline)) {
      __m512i words = _mm512_or_si512(place_e4m3(codes), _mm512_set1_epi16(0x3800));
      if (rare) [[unlikely]]
        words = with_subnormals(words, codes, subnormals());
      emit(line, words);
    };
    for_each_e4m3_line(codes_ + step * kStepBytes, decode);
  }

 private:
  /// Mantissa m of exponent 0: m / 2^17.
  [[gnu::always_inline]] static __m128i subnormals() {
    return _mm_setr_epi16(0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860);
  }

  const std::byte* codes_;
};

END_TARGET

}  // namespace
}  // namespace moesaic
