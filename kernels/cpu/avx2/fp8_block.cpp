#include "kernels/formats/fp8_block.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e4m3.h"
#include "kernels/cpu/avx2/round_words.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// 8 words of bf16 as floats.
__m256 widen(__m128i words) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* panel = steps.matrix->panel(steps.panel);
  const auto* scales =
      reinterpret_cast<const float*>(panel + fp8_block_format::scales_offset(steps.matrix->depth));
  const std::int64_t steps_per_block = steps.matrix->layout.group / kStepDepth;
  for (std::int64_t s = steps.first; s < steps.first + steps.count; ++s) {
    const __m256 scale = _mm256_set1_ps(scales[s / steps_per_block] * 256);
    for (std::int64_t i = 0; i < 512; i += 16, out += 32) {
      const __m256i words = e4m3_words(load_e4m3(panel + s * 512 + i));
      const __m256 low = _mm256_mul_ps(widen(_mm256_castsi256_si128(words)), scale);
      const __m256 high = _mm256_mul_ps(widen(_mm256_extracti128_si256(words, 1)), scale);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out), round_to_words(low, high));
    }
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_fp8_block_kernel;
constinit const GemmKernel avx2_fp8_block_kernel =
    avx2_decoded_kernel<decode>(Format::fp8_block, "avx2/fp8_block");

}  // namespace moesaic
