#include "kernels/formats/nvfp4.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e2m1.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// Of 8 columns from their e4m3 scales, which half precision has two bits to the right and with a
/// bias that is 8 larger.
E2m1Bases bases_of(const std::byte* scales) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
  const __m256 values = _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7));
  const auto words = [values](float factor) {
    const __m256 scaled = _mm256_mul_ps(values, _mm256_set1_ps(256 * factor));
    return twice(_mm256_srli_epi32(_mm256_castps_si256(scaled), 16));  // exact in bf16
  };
  return {words(0.75F), words(0.5F)};
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* panel = steps.matrix->panel(steps.panel);
  const std::byte* scales = panel + nvfp4_format::scales_offset(steps.matrix->depth);
  for (std::int64_t s = steps.first; s < steps.first + steps.count; ++s, out += kTileBytes) {
    for (std::int64_t v = 0; v < 4; ++v) {  // vectors 0 and 1 have the first 16 k
      for (std::int64_t half = 0; half < 2; ++half) {
        decode_e2m1(panel + s * 256 + v * 64 + half * 32,
                    bases_of(scales + (2 * s + v / 2) * kPanelColumns + half * 8),
                    out + v * 256 + half * 32);
      }
    }
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_nvfp4_kernel;
constinit const GemmKernel avx2_nvfp4_kernel =
    avx2_decoded_kernel<decode>(Format::nvfp4, "avx2/nvfp4");

}  // namespace moesaic
