#include "kernels/formats/mxfp4.h"

#include "kernels/cpu/avx2/e2m1_lines.h"
#include "kernels/cpu/avx2/one_row.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Half the scale has exponent e - 1, which may wrap below zero: codes whose values would be
/// subnormal are zero in the packed form, the others bring the exponent back into range.
inline E2m1Scales load_scales(const std::byte* bytes) {
  const __m256i exponents =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  const __m256i twice = _mm256_or_si256(exponents, _mm256_slli_epi32(exponents, 16));
  const __m256i half = _mm256_slli_epi16(_mm256_sub_epi16(twice, _mm256_set1_epi16(1)), 7);
  const __m256i to_half = _mm256_set1_epi16(0x40);
  return {_mm256_or_si256(half, to_half), to_half};
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* const panel = steps.matrix->panel(steps.panel);
  const std::byte* codes = panel + steps.first * e2m1_body::kStepBytes;
  const std::byte* scales =
      panel + mxfp4_format::scales_offset(steps.matrix->depth) + steps.first * kPanelColumns;
  for (std::int64_t step = 0; step < steps.count; ++step) {
    prefetch_lines(codes + kPrefetchBytes, 4);
    for (int half = 0; half < 2; ++half) {
      const E2m1Scales columns = load_scales(scales + 8 * half);
      for (int j = 0; j < 4; ++j) {
        decode_e2m1(codes + 64 * j + 32 * half, columns, out + 256 * j + 32 * half);
      }
    }
    codes += e2m1_body::kStepBytes;
    scales += kPanelColumns;
    out += kTileBytes;
  }
}

/// A quarter of a code's value is multiplied by four times the scale, so that the scale is a normal
/// number; where four times is too much, the value becomes whole before.
class RowDecoder : public E2m1RowDecoder {
 public:
  RowDecoder(const PackedMatrix& matrix, std::int64_t panel)
      : scales_(matrix.panel(panel) + mxfp4_format::scales_offset(matrix.depth)) {}

  [[gnu::always_inline]] void sum_step(std::int64_t step, const std::byte* codes, const float* row,
                                       __m256 (&chains)[4]) const {
    const std::byte* const scales = scales_ + step * kPanelColumns;
    const __m128i exponents = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    const __m128i beyond = _mm_subs_epu8(exponents, _mm_set1_epi8(static_cast<char>(kMost)));
    if (_mm_testz_si128(beyond, beyond) != 0) [[likely]] {
      sum_columns<false>(exponents, codes, row, chains);
    } else {
      sum_columns<true>(exponents, codes, row, chains);
    }
  }

 private:
  static constexpr int kMost = 254 - 2;  // of an exponent to be raised by two

  template <bool SomeAreLarge>
  [[gnu::always_inline]] void sum_columns(__m128i exponents, const std::byte* codes,
                                          const float* row, __m256 (&chains)[4]) const {
    MOESAIC_UNROLL
    for (int side = 0; side < 2; ++side) {
      const __m256i fields =
          _mm256_cvtepu8_epi32(side == 0 ? exponents : _mm_unpackhi_epi64(exponents, exponents));
      const __m256i is_large = _mm256_cmpgt_epi32(fields, _mm256_set1_epi32(kMost));
      const __m256i two = _mm256_andnot_si256(is_large, _mm256_set1_epi32(2));
      const Paired powers(
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(fields, two), 23)));
      const Paired before(
          _mm256_blendv_ps(_mm256_set1_ps(1), _mm256_set1_ps(4), _mm256_castsi256_ps(is_large)));
      const auto scale = [&](__m256 values, int i) __attribute__((always_inline)) {
        if constexpr (SomeAreLarge) values = _mm256_mul_ps(values, before.of[i]);
        return _mm256_mul_ps(values, powers.of[i]);
      };
      MOESAIC_UNROLL
      for (int j = 0; j < 4; ++j) {
        sum_e2m1(codes + 64 * j + 32 * side, values_, row + 8 * j, scale, chains + 2 * side);
      }
    }
  }

  const std::byte* scales_;
  E2m1Values values_ = e2m1_values<1>();
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_mxfp4_kernel;
constinit const GemmKernel avx2_mxfp4_kernel =
    avx2_decoded_kernel<RowDecoder, decode>(Format::mxfp4, "avx2/mxfp4");

}  // namespace moesaic
