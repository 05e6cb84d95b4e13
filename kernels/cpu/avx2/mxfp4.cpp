#include "kernels/formats/mxfp4.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e2m1_lines.h"
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

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_mxfp4_kernel;
constinit const GemmKernel avx2_mxfp4_kernel =
    avx2_decoded_kernel<decode>(Format::mxfp4, "avx2/mxfp4");

}  // namespace moesaic
