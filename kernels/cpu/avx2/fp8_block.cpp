#include "kernels/formats/fp8_block.h"

#include <bit>

#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/e4m3_lines.h"
#include "kernels/cpu/avx2/round_bf16.h"
#include "kernels/cpu/prefetch.h"

// A block has one scale for all of a panel's columns, so that mantissas times the scale, rounded to
// bf16, come from a table that is made once for a block. Powers of two do not change the rounding:
// the table is made with a scale of 1 to 2, and the rest of it goes into the exponent.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// `factors` times `scale` and 2^exponent. The exponent's field may wrap: in the packed form no
/// code's value is subnormal, and of a scale that is zero all codes are zero.
inline __m256i scaled_words(__m256 factors, float scale, int exponent) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const auto significand = std::bit_cast<float>((bits & 0x7fffffU) | 0x3f800000U);
  const int raise = static_cast<int>(bits >> 23) - 127 + exponent;
  const __m256 products = _mm256_mul_ps(factors, _mm256_set1_ps(significand));
  return _mm256_add_epi32(_mm256_srli_epi32(round_to_bf16(products), 16),
                          _mm256_set1_epi32(raise * 128));
}

inline E4m3Tables make_tables(float scale) {
  const __m256 mantissas = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 normal = _mm256_add_ps(mantissas, _mm256_set1_ps(8));
  return {make_table(scaled_words(normal, scale, -10)),
          make_table(without_first(scaled_words(mantissas, scale, -9)))};
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const PackedMatrix& matrix = *steps.matrix;
  const std::byte* const panel = matrix.panel(steps.panel);
  const std::byte* codes = panel + steps.first * e4m3_body::kStepBytes;
  const auto* scales =
      reinterpret_cast<const float*>(panel + fp8_block_format::scales_offset(matrix.depth));
  const std::int64_t steps_per_block = matrix.layout.group / kStepDepth;
  E4m3Tables tables = make_tables(scales[steps.first / steps_per_block]);
  for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
    if (step % steps_per_block == 0) tables = make_tables(scales[step / steps_per_block]);
    prefetch_lines(codes + kPrefetchBytes, 8);
    decode_e4m3_step(codes, tables, out);
    codes += e4m3_body::kStepBytes;
    out += kTileBytes;
  }
}

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_fp8_block_kernel;
constinit const GemmKernel avx2_fp8_block_kernel =
    avx2_decoded_kernel<decode>(Format::fp8_block, "avx2/fp8_block");

}  // namespace moesaic
