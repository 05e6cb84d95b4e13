#include "kernels/formats/int4_group.h"

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/round_words.h"

namespace moesaic {
namespace {

BEGIN_TARGET("avx2,fma,f16c")

/// Of 4 columns, each twice: for its two k.
struct Scales {
  __m256 factors;
  __m256 zeros;
};

Scales load_scales(const Layout& layout, const std::byte* scales, std::int64_t column) {
  const __m256i each_twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  if (layout.wide_scales) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + column * 4));
    const __m256i words = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(four), each_twice);
    return {_mm256_castsi256_ps(_mm256_andnot_si256(_mm256_set1_epi32(0xff), words)),
            _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(0xff)))};
  }
  const __m128i four =
      _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + column * 2)));
  const __m256i words = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(four), each_twice);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), _mm256_set1_ps(8)};
}

/// The low four bits of each word: (code - zero) * factor.
__m256 values_of(__m256i words, const Scales& scales) {
  const __m256 codes = _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(15)));
  return _mm256_mul_ps(_mm256_sub_ps(codes, scales.zeros), scales.factors);
}

/// One vector: 8 columns in 8 lines, 64 bytes apart.
void decode_vector(const std::byte* from, const Scales (&scales)[2], std::byte* lines) {
  __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
  for (int r = 0; r < 8; ++r, lines += 64) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(lines),
                       round_to_words(values_of(low, scales[0]), values_of(high, scales[1])));
    low = _mm256_srli_epi32(low, 4);
    high = _mm256_srli_epi32(high, 4);
  }
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const PackedMatrix& matrix = *steps.matrix;
  const std::byte* panel = matrix.panel(steps.panel);
  const std::byte* all_scales = panel + int4_group_format::scales_offset(matrix.depth);
  const std::int64_t group_bytes = kPanelColumns * (matrix.layout.wide_scales ? 4 : 2);
  for (std::int64_t s = steps.first; s < steps.first + steps.count; ++s, out += kTileBytes) {
    const std::byte* group = all_scales + s * kStepDepth / matrix.layout.group * group_bytes;
    for (std::int64_t side = 0; side < 2; ++side) {  // columns 0 to 7, 8 to 15
      const Scales scales[2] = {load_scales(matrix.layout, group, 8 * side),
                                load_scales(matrix.layout, group, 8 * side + 4)};
      for (std::int64_t half = 0; half < 2; ++half) {  // lines 0 to 7, 8 to 15
        decode_vector(panel + s * 256 + (2 * half + side) * 64, scales,
                      out + half * 512 + side * 32);
      }
    }
  }
}

END_TARGET

}  // namespace

extern const GemmKernel avx2_int4_group_kernel;
constinit const GemmKernel avx2_int4_group_kernel =
    avx2_decoded_kernel<decode>(Format::int4_group, "avx2/int4_group");

}  // namespace moesaic
