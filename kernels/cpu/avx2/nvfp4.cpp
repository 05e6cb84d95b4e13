#include "kernels/formats/nvfp4.h"

#include "kernels/cpu/avx2/e2m1_lines.h"
#include "kernels/cpu/avx2/one_row.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Eight bytes, e4m3 without sign, as floats.
inline __m256 e4m3_to_floats(const std::byte* bytes) {
  const __m256i codes =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  const __m256i normal =
      _mm256_add_epi32(_mm256_slli_epi32(codes, 20), _mm256_set1_epi32((127 - 7) << 23));
  const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(codes), _mm256_set1_ps(0x1p-9F));
  const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), codes);
  return _mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal,
                          _mm256_castsi256_ps(is_subnormal));
}

/// The upper halves of eight floats, each twice.
inline __m256i upper_words(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  return _mm256_or_si256(bits, _mm256_srli_epi32(bits, 16));
}

/// Of eight columns; the products are exact in bf16.
inline E2m1Scales load_scales(const std::byte* bytes) {
  const __m256 scales = e4m3_to_floats(bytes);
  const __m256i three_quarters = upper_words(_mm256_mul_ps(scales, _mm256_set1_ps(0.75F)));
  const __m256i half = upper_words(_mm256_mul_ps(scales, _mm256_set1_ps(0.5F)));
  return {three_quarters, _mm256_xor_si256(three_quarters, half)};
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* const panel = steps.matrix->panel(steps.panel);
  const std::byte* codes = panel + steps.first * e2m1_body::kStepBytes;
  const std::byte* scales =
      panel + nvfp4_format::scales_offset(steps.matrix->depth) + steps.first * 2 * kPanelColumns;
  for (std::int64_t group = 0; group < 2 * steps.count; ++group) {  // 8 lines each
    prefetch_lines(codes + kPrefetchBytes, 2);
    for (int half = 0; half < 2; ++half) {
      const E2m1Scales columns = load_scales(scales + 8 * half);
      decode_e2m1(codes + 32 * half, columns, out + 32 * half);
      decode_e2m1(codes + 64 + 32 * half, columns, out + 256 + 32 * half);
    }
    codes += e2m1_body::kStepBytes / 2;
    scales += kPanelColumns;
    out += kTileBytes / 2;
  }
}

class RowDecoder : public E2m1RowDecoder {
 public:
  RowDecoder(const PackedMatrix& matrix, std::int64_t panel)
      : scales_(matrix.panel(panel) + nvfp4_format::scales_offset(matrix.depth)) {}

  [[gnu::always_inline]] void sum_step(std::int64_t step, const std::byte* codes, const float* row,
                                       __m256 (&chains)[4]) const {
    const std::byte* scales = scales_ + step * 2 * kPanelColumns;
    for (int group = 0; group < 2; ++group, scales += kPanelColumns) {
      MOESAIC_UNROLL
      for (int side = 0; side < 2; ++side) {
        const Paired paired(e4m3_to_floats(scales + 8 * side));
        const auto scale = [&](__m256 values, int i) __attribute__((always_inline)) {
          return _mm256_mul_ps(values, paired.of[i]);
        };
        MOESAIC_UNROLL
        for (int j = 2 * group; j < 2 * group + 2; ++j) {
          sum_e2m1(codes + 64 * j + 32 * side, values_, row + 8 * j, scale, chains + 2 * side);
        }
      }
    }
  }

 private:
  const std::byte* scales_;
  E2m1Values values_ = e2m1_values<0>();
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_nvfp4_kernel;
constinit const GemmKernel avx2_nvfp4_kernel =
    avx2_decoded_kernel<RowDecoder, decode>(Format::nvfp4, "avx2/nvfp4");

}  // namespace moesaic
