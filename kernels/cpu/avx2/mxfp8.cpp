#include "kernels/formats/mxfp8.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e4m3.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// What the exponents of 8 columns' words are raised by: those of their scales less the bias of
/// e4m3.
__m256i raises_of(const std::byte* scales) {
  const __m256i exponents =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
  const __m256i raise =
      _mm256_and_si256(_mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(7)), 7),
                       _mm256_set1_epi32(0xffff));
  return _mm256_or_si256(raise, _mm256_slli_epi32(raise, 16));
}

__m256i decode_words(__m256i codes, __m256i raises) {
  const __m256i placed =
      _mm256_and_si256(_mm256_slli_epi16(codes, 4), _mm256_set1_epi16(static_cast<short>(0x87f0)));
  // Mantissa m of exponent 0 stands for m / 2^9, whose exponent field would be 0, -1 or -2.
  const __m128i subnormals = _mm_setr_epi16(0, -0x100, -0x80, -0x80 + 0x40, 0, 0x20, 0x40, 0x60);
  const __m256i words = with_subnormals(codes, subnormals, placed);
  const __m256i zero =
      _mm256_cmpeq_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0x7f)), _mm256_setzero_si256());
  return _mm256_andnot_si256(zero, _mm256_add_epi16(words, raises));
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* panel = steps.matrix->panel(steps.panel);
  const std::byte* scales = panel + mxfp8_format::scales_offset(steps.matrix->depth);
  for (std::int64_t s = steps.first; s < steps.first + steps.count; ++s) {
    const __m256i raises[2] = {raises_of(scales + s * kPanelColumns),
                               raises_of(scales + s * kPanelColumns + 8)};
    for (std::int64_t i = 0; i < 512; i += 16, out += 32) {
      const __m256i codes = load_e4m3(panel + s * 512 + i);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out), decode_words(codes, raises[i / 16 % 2]));
    }
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_mxfp8_kernel;
constinit const GemmKernel avx2_mxfp8_kernel =
    avx2_decoded_kernel<decode>(Format::mxfp8, "avx2/mxfp8");

}  // namespace moesaic
