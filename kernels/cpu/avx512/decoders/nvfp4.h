#pragma once

#include "kernels/cpu/avx512/decoders/e2m1.h"
#include "kernels/formats/nvfp4.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Nvfp4Decoder {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = 256;

  Nvfp4Decoder(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)), scales_(codes_ + nvfp4_format::scales_offset(matrix.depth)) {}

  /// emit(line, 32 words) for the 8 lines of half a step.
  template <typename Emit>
  [[gnu::always_inline]] void half_step(std::int64_t step, int half, const Emit& emit) const {
    const std::byte* codes = codes_ + step * kStepBytes;
    const auto* bytes = reinterpret_cast<const __m128i*>(scales_at(step) + 16 * half);
    const E2m1Table table = e2m1_table(e4m3_to_floats(_mm_loadu_si128(bytes)));
#pragma GCC unroll 2
    for (int v = 2 * half; v < 2 * half + 2; ++v) {
      decode_e2m1(codes + 64 * v, v, table, emit);
    }
  }

  static constexpr bool kHasFloats = true;
  /// emit(line, floats of even k, of odd k)
  template <typename Emit>
  [[gnu::always_inline]] void float_step(std::int64_t step, const Emit& emit) const {
    const std::byte* codes = codes_ + step * kStepBytes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const auto* bytes = reinterpret_cast<const __m128i*>(scales_at(step) + 16 * half);
      const __m512 scales = e4m3_to_floats(_mm_loadu_si128(bytes));
      const auto scale = [=](__m512 x) __attribute__((always_inline)) {
        return _mm512_mul_ps(x, scales);
      };
#pragma GCC unroll 2
      for (int v = 2 * half; v < 2 * half + 2; ++v) {
        decode_e2m1_floats(codes + 64 * v, v, scale, emit);
      }
    }
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + step * 32;
  }

 private:
  const std::byte* codes_;
  const std::byte* scales_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
