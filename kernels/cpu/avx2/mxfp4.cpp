#include "kernels/formats/mxfp4.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e2m1.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// Of 8 columns from their e8m0 scales. Half a scale has exponent e - 1, which may wrap below zero:
/// codes whose values would be subnormal are zero in the packed form, the others bring the exponent
/// back into range.
E2m1Bases bases_of(const std::byte* scales) {
  const __m256i exponents =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
  const __m256i half =
      _mm256_and_si256(_mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)), 7),
                       _mm256_set1_epi32(0xffff));
  return {twice(_mm256_or_si256(half, _mm256_set1_epi32(0x40))), twice(half)};
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* panel = steps.matrix->panel(steps.panel);
  const std::byte* scales = panel + mxfp4_format::scales_offset(steps.matrix->depth);
  for (std::int64_t s = steps.first; s < steps.first + steps.count; ++s, out += kTileBytes) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const E2m1Bases bases = bases_of(scales + s * kPanelColumns + half * 8);
      for (std::int64_t v = 0; v < 4; ++v) {
        decode_e2m1(panel + s * 256 + v * 64 + half * 32, bases, out + v * 256 + half * 32);
      }
    }
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_mxfp4_kernel;
constinit const GemmKernel avx2_mxfp4_kernel =
    avx2_decoded_kernel<decode>(Format::mxfp4, "avx2/mxfp4");

}  // namespace moesaic
