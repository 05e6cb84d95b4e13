#pragma once

#include "kernels/cpu/avx512/decoders/e4m3.h"
#include "kernels/formats/fp8_channel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Fp8ChannelDecoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 512;

  Fp8ChannelDecoder(const PackedMatrix& matrix, std::int64_t panel) : codes_(matrix.panel(panel)) {}

  /// emit(line, 32 words) for the 8 lines of half a step.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) const {
    for_each_e4m3_value(
        codes_ + step * kStepBytes,
        half, [&](int line, __m512i words, __m512i /*codes*/) __attribute__((always_inline)) {
          emit(line, words);
        });
  }

 private:
  const std::byte* codes_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
