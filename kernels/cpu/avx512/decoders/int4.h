#pragma once

#include "kernels/cpu/avx512/decoders/words.h"
#include "kernels/formats/int4.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Int4Decoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 512;

  Int4Decoder(const PackedMatrix& matrix, std::int64_t panel) : codes_(matrix.panel(panel)) {}

  /// emit(line, 64 bytes) for the 8 lines of half a tile: 16 times each code, which needs no sign
  /// extension.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) const {
    const std::byte* codes = codes_ + step * kStepBytes;
    const __m512i upper = _mm512_set1_epi8(static_cast<char>(0xf0));
#pragma GCC unroll 4
    for (int pair = 4 * half; pair < 4 * half + 4; ++pair) {
      const std::byte* at = codes + 64 * pair;
      const __m512i bytes = _mm512_loadu_si512(at);
      emit(2 * pair, _mm512_and_si512(_mm512_slli_epi16(bytes, 4), upper));
      emit(2 * pair + 1, _mm512_and_si512(bytes, upper));
    }
  }

 private:
  const std::byte* codes_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
