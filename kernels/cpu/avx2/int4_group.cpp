#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/int4_columns.h"
#include "kernels/cpu/avx2/one_row.h"
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

// --- one row: weights become floats where they are multiplied -------------------------------

/// Rounded to bf16, to nearest even: c - (c - x) with c = 65537 x (Veltkamp). Overflows for some
/// that round_to_bf16() rounds.
[[gnu::always_inline]] inline __m256 round_small(__m256 x) {
  const __m256 c = _mm256_mul_ps(x, _mm256_set1_ps(65537));
  return _mm256_sub_ps(c, _mm256_sub_ps(c, x));
}
[[gnu::always_inline]] inline __m256 round_any(__m256 x) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  return _mm256_castsi256_ps(_mm256_and_si256(round_to_bf16(x), upper));
}

/// Of one group, each twice, for even and odd k: four columns a vector.
struct PairedColumns {
  __m256 scales[4];
  __m256 offsets[4];
  bool is_large;  // round_small() might overflow
};

[[gnu::always_inline]] inline PairedColumns pair_columns(const Layout& layout,
                                                         const std::byte* group) {
  PairedColumns paired;
  __m256 largest = _mm256_setzero_ps();
  MOESAIC_UNROLL
  for (int side = 0; side < 2; ++side) {
    const Columns columns =
        load_columns(layout, group + side * int4_group_format::scale_bytes(layout) / 2);
    MOESAIC_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256i lanes =
          _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), _mm256_set1_epi32(4 * half));
      paired.scales[2 * side + half] = _mm256_permutevar8x32_ps(columns.scale, lanes);
      paired.offsets[2 * side + half] = _mm256_permutevar8x32_ps(columns.offset, lanes);
    }
    const __m256 magnitudes = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), columns.scale);
    largest = _mm256_max_ps(largest, magnitudes);
  }
  // A code less its zero point is at most 255; 65537 times 2^110 is a float.
  const __m256 limit = _mm256_set1_ps(0x1p+102F);
  paired.is_large = _mm256_movemask_ps(_mm256_cmp_ps(largest, limit, _CMP_GT_OQ)) != 0;
  return paired;
}

/// The even and the odd chain of one step side by side, of four columns a vector. The four are
/// summed in turn: one alone would wait for its own last addition.
template <__m256 (*Round)(__m256)>
[[gnu::always_inline]] inline void sum_codes(const std::byte* codes, const PairedColumns& columns,
                                             const float* row, __m256 (&chains)[4]) {
  MOESAIC_UNROLL
  for (int half = 0; half < 2; ++half) {
    __m256i words[4];
    MOESAIC_UNROLL
    for (int q = 0; q < 4; ++q) {  // codes - 8 in two's complement
      const auto* from = reinterpret_cast<const __m256i*>(codes + 128 * half) + q;
      words[q] = _mm256_xor_si256(_mm256_loadu_si256(from),
                                  _mm256_set1_epi32(static_cast<int>(0x88888888U)));
    }
    MOESAIC_UNROLL
    for (int r = 0; r < 8; ++r) {
      const auto* const pair = reinterpret_cast<const double*>(row + 16 * half + 2 * r);
      const __m256 values = _mm256_castpd_ps(_mm256_broadcast_sd(pair));
      MOESAIC_UNROLL
      for (int q = 0; q < 4; ++q) {
        const __m256i differences = _mm256_srai_epi32(_mm256_slli_epi32(words[q], 28 - 4 * r), 28);
        const __m256 weights = Round(_mm256_fmadd_ps(_mm256_cvtepi32_ps(differences),
                                                     columns.scales[q], columns.offsets[q]));
        chains[q] = _mm256_fmadd_ps(values, weights, chains[q]);
      }
    }
  }
}

class RowDecoder {
 public:
  static constexpr std::int64_t kStepBytes = int4_group_format::kStepBytes;

  RowDecoder(const PackedMatrix& matrix, std::int64_t panel)
      : layout_(matrix.layout),
        scales_(matrix.panel(panel) + int4_group_format::scales_offset(matrix.depth)),
        steps_per_group_(layout_.group / kStepDepth) {}

  [[gnu::always_inline]] void sum_step(std::int64_t step, const std::byte* codes, const float* row,
                                       __m256 (&chains)[4]) {
    if (step % steps_per_group_ == 0) {
      const std::int64_t group = step / steps_per_group_;
      columns_ = pair_columns(layout_, scales_ + group * int4_group_format::scale_bytes(layout_));
    }
    if (columns_.is_large) [[unlikely]] {
      sum_codes<round_any>(codes, columns_, row, chains);
    } else {
      sum_codes<round_small>(codes, columns_, row, chains);
    }
  }

  [[gnu::always_inline]] static __m256 join(__m256 first, __m256 second) {
    const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(first, second));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xd8));
  }

 private:
  Layout layout_;
  const std::byte* scales_;
  std::int64_t steps_per_group_;
  PairedColumns columns_{};
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_int4_group_kernel;
constinit const GemmKernel avx2_int4_group_kernel =
    avx2_decoded_kernel<RowDecoder, decode>(Format::int4_group, "avx2/int4_group");

}  // namespace moesaic
