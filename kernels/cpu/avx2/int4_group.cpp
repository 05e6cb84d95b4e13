#include "kernels/cpu/avx2/decoded.h"
#include "kernels/cpu/avx2/int4_columns.h"
#include "kernels/cpu/avx2/round_bf16.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Of eight columns.
struct Columns {
  __m256 scale;
  __m256 offset;  // (8 - zero point) * scale
};

inline Columns load_columns(const Layout& layout, const std::byte* scales) {
  const Int4Columns columns = load_int4_columns(layout, scales);
  const __m256i eight = _mm256_set1_epi32(int4_group_format::kCompactZero);
  const __m256 differences = _mm256_cvtepi32_ps(_mm256_sub_epi32(eight, columns.zero));
  return {columns.scale, _mm256_mul_ps(differences, columns.scale)};
}

/// The lowest four bits of eight words as values, their bf16 in the upper half.
inline __m256i decode_nibbles(__m256i words, const Columns& columns) {
  const __m256i codes = _mm256_and_si256(words, _mm256_set1_epi32(15));
  const __m256i differences =
      _mm256_sub_epi32(codes, _mm256_set1_epi32(int4_group_format::kCompactZero));
  return round_to_bf16(
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(differences), columns.scale, columns.offset));
}

/// Eight columns of eight lines from their 64 bytes: [8 columns][2 parities] words of eight
/// nibbles.
[[gnu::always_inline]] inline void decode_half(const std::byte* codes, const Columns& columns,
                                               std::byte* lines) {
  const __m256 first = _mm256_loadu_ps(reinterpret_cast<const float*>(codes));
  const __m256 second = _mm256_loadu_ps(reinterpret_cast<const float*>(codes + 32));
  const __m256 outer = _mm256_permute2f128_ps(first, second, 0x20);  // columns 0, 1, 4, 5
  const __m256 inner = _mm256_permute2f128_ps(first, second, 0x31);  // columns 2, 3, 6, 7
  __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(outer, inner, 0x88));
  __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(outer, inner, 0xdd));
  for (int line = 0; line < 8; ++line) {
    const __m256i low = _mm256_srli_epi32(decode_nibbles(even, columns), 16);
    const __m256i words = _mm256_blend_epi16(low, decode_nibbles(odd, columns), 0xaa);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lines + 64 * line), words);
    even = _mm256_srli_epi32(even, 4);
    odd = _mm256_srli_epi32(odd, 4);
  }
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const PackedMatrix& matrix = *steps.matrix;
  const std::byte* const panel = matrix.panel(steps.panel);
  const std::byte* codes = panel + steps.first * int4_group_format::kStepBytes;
  const std::byte* const scales = panel + int4_group_format::scales_offset(matrix.depth);
  const std::int64_t scale_bytes = int4_group_format::scale_bytes(matrix.layout);
  const std::int64_t steps_per_group = matrix.layout.group / kStepDepth;
  for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
    const std::byte* const group = scales + step / steps_per_group * scale_bytes;
    prefetch_lines(codes + kPrefetchBytes, 4);
    for (int side = 0; side < 2; ++side) {  // columns 0 to 7, 8 to 15
      const Columns columns = load_columns(matrix.layout, group + side * scale_bytes / 2);
      decode_half(codes + 64 * side, columns, out + 32 * side);
      decode_half(codes + 128 + 64 * side, columns, out + kTileBytes / 2 + 32 * side);
    }
    codes += int4_group_format::kStepBytes;
    out += kTileBytes;
  }
}

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_int4_group_kernel;
constinit const GemmKernel avx2_int4_group_kernel =
    avx2_decoded_kernel<decode>(Format::int4_group, "avx2/int4_group");

}  // namespace moesaic
