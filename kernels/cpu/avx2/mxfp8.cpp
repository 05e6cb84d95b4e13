#include "kernels/formats/mxfp8.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e4m3_lines.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// What the scales of eight columns add to their words: the exponent less the bias of e4m3. It may
/// wrap below zero, from where the codes bring it back: none has a subnormal value in the packed
/// form.
inline __m256i load_offsets(const std::byte* scales) {
  const __m256i exponents =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
  const __m256i twice = _mm256_or_si256(exponents, _mm256_slli_epi32(exponents, 16));
  return _mm256_slli_epi16(_mm256_sub_epi16(twice, _mm256_set1_epi16(7)), 7);
}

/// Eight columns of a pair of lines.
[[gnu::always_inline]] inline void decode_half_lines(const std::byte* codes,
                                                     const E4m3Tables& tables, __m256i offsets,
                                                     std::byte* out) {
  for (const __m256i bytes : load_e4m3(codes).lines) {
    const __m256i words = _mm256_add_epi16(decode_e4m3(bytes, tables), offsets);
    const __m256i is_zero = _mm256_cmpeq_epi16(bytes, _mm256_setzero_si256());
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm256_andnot_si256(is_zero, words));
    out += 64;
  }
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* const panel = steps.matrix->panel(steps.panel);
  const std::byte* codes = panel + steps.first * e4m3_body::kStepBytes;
  const std::byte* scales =
      panel + mxfp8_format::scales_offset(steps.matrix->depth) + steps.first * kPanelColumns;
  const E4m3Tables tables{make_table(mantissa_words()), make_table(subnormal_words())};
  for (std::int64_t step = 0; step < steps.count; ++step, scales += kPanelColumns) {
    prefetch_lines(codes + kPrefetchBytes, 8);
    const __m256i left = load_offsets(scales);
    const __m256i right = load_offsets(scales + 8);
    for (int pair = 0; pair < 8; ++pair, codes += 64, out += 128) {
      decode_half_lines(codes, tables, left, out);
      decode_half_lines(codes + 32, tables, right, out + 32);
    }
  }
}

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_mxfp8_kernel;
constinit const GemmKernel avx2_mxfp8_kernel =
    avx2_decoded_kernel<decode>(Format::mxfp8, "avx2/mxfp8");

}  // namespace moesaic
