#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/decoders/int4_panel.h"
#include "kernels/cpu/avx512/pack_bytes.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/prefetch.h"

// int4_group in groups of 128 times int8 activations with a scale for each token and group, by
// VPDPBUSD. Internal to each kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Codes of one group, 64 bytes a tile, `tile_stride` bytes apart, in the order of
/// group_row_bytes().
template <typename Element>
ByteGroup pack_byte_group(const Element* source, std::int64_t left, std::byte* out,
                          std::size_t tile_stride) {
  const TokenScale token = find_token_scale(source, std::min(left, kByteGroupDepth));
  const __m512 inverse = _mm512_set1_ps(token.inverse);
  // Infinity times 0 would be the code of NaN; such groups have codes 0.
  const bool zeros = token.inverse == 0;
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  __m512i sums = _mm512_setzero_si512();
  for (std::int64_t k = 0; k < kByteGroupDepth; k += 64, out += tile_stride) {
    const __m512i codes =
        zeros ? _mm512_setzero_si512() : quantize_64(source + k, left - k, inverse);
    const __m512i ordered = _mm512_shuffle_epi8(codes, order);
    _mm512_store_si512(out, ordered);
    sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), ordered);
  }
  return {.scale = token.scale, .sum = _mm512_reduce_add_epi32(sums)};
}

template <typename Element>
void pack_group_row(const Element* source, std::int64_t depth, std::byte* out,
                    std::size_t tile_stride, ByteGroup* groups) {
  for (std::int64_t k = 0; k < depth; k += kByteGroupDepth, out += 2 * tile_stride) {
    *groups++ = pack_byte_group(source + k, depth - k, out, tile_stride);
  }
}

inline void pack_group_row(const RowSource& source, std::int64_t row, std::byte* out,
                           std::size_t tile_stride, ByteGroup* groups) {
  if (source.element == RowSource::Element::f32) {
    pack_group_row(reinterpret_cast<const float*>(source.rows[row]), source.depth, out, tile_stride,
                   groups);
  } else {
    pack_group_row(reinterpret_cast<const BFloat16*>(source.rows[row]), source.depth, out,
                   tile_stride, groups);
  }
}

/// Words 0, 2, 4, ... of two vectors; with `first` 1 the others.
inline __m512i every_other(__m512i left, __m512i right, int first) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_epi32(left, _mm512_or_si512(even, _mm512_set1_epi32(first)), right);
}

/// Sums of one row over a group: columns 0 to 7 and 8 to 15, two parities of k each.
struct ByteSum {
  __m512i left;
  __m512i right;

  [[gnu::always_inline]] void clear() { left = right = _mm512_setzero_si512(); }
  /// The eight codes at `row`, four of each parity.
  [[gnu::always_inline]] void add(const std::byte* row, __m512i left_codes, __m512i right_codes) {
    const __m512i values = _mm512_set1_epi64(*reinterpret_cast<const long long*>(row));
    left = _mm512_dpbusd_epi32(left, left_codes, values);
    right = _mm512_dpbusd_epi32(right, right_codes, values);
  }
  [[nodiscard, gnu::always_inline]] __m512i columns() const {
    return _mm512_add_epi32(every_other(left, right, 0), every_other(left, right, 1));
  }
};

/// Bytes by which codes are asked for before they are read.
constexpr std::int64_t kGroupCodesAhead = 6144;

/// Rows [first_row, first_row + NumRows) times one panel.
template <std::size_t NumRows>
[[gnu::noinline]] void multiply_byte_groups(const TileArgs& args, std::int64_t panel_index,
                                            std::int64_t first_row) noexcept {
  using int4_group_format::kStepBytes;
  const PackedMatrix& matrix = *args.matrix;
  const std::size_t row_bytes = group_row_bytes(matrix.depth);
  const std::byte* rows = args.packed_rows + static_cast<std::size_t>(first_row) * row_bytes;
  const std::int64_t num_groups = byte_group_count(matrix.depth);
  const auto* row_groups = reinterpret_cast<const ByteGroup*>(rows + num_groups * kByteGroupDepth);
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  // What comes after this panel's codes are the next panel's; its scales are asked for all along.
  const std::int64_t stride = matrix.panel_stride();
  const std::int64_t steps_ahead = std::min(steps, kGroupCodesAhead / kStepBytes);
  const Int4Panel panel(matrix, args.first_panel + panel_index);
  const std::byte* ahead = panel.codes(steps_ahead);
  const __m512i low = _mm512_set1_epi8(0x0f);
  __m512 totals[NumRows] = {};
  std::int64_t step = 0;
  for (std::int64_t group = 0; group < num_groups; ++group, ++row_groups) {
    prefetch_lines(panel.scales_at(group) + stride, 1);
    ByteSum sums[NumRows];
#pragma GCC unroll 12
    for (ByteSum& sum : sums) sum.clear();
    const std::int64_t end = std::min(step + kByteGroupDepth / kStepDepth, steps);
    for (; step < end; ++step, rows += kStepDepth) {
      if (step + steps_ahead == steps) ahead += stride - steps * kStepBytes;
      prefetch_lines(ahead, kStepBytes / 64);
      ahead += kStepBytes;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512i left = _mm512_loadu_si512(panel.codes(step) + half * 128);
        const __m512i right = _mm512_loadu_si512(panel.codes(step) + half * 128 + 64);
        const __m512i left_low = _mm512_and_si512(left, low);
        const __m512i right_low = _mm512_and_si512(right, low);
#pragma GCC unroll 12
        for (std::size_t r = 0; r < NumRows; ++r) {
          sums[r].add(rows + r * row_bytes + half * 16, left_low, right_low);
        }
        const __m512i left_high = _mm512_and_si512(_mm512_srli_epi16(left, 4), low);
        const __m512i right_high = _mm512_and_si512(_mm512_srli_epi16(right, 4), low);
#pragma GCC unroll 12
        for (std::size_t r = 0; r < NumRows; ++r) {
          sums[r].add(rows + r * row_bytes + half * 16 + 8, left_high, right_high);
        }
      }
    }
    const __m512 scales = panel.scales(group);
    const __m512i zeros = panel.zeros(group);
#pragma GCC unroll 12
    for (std::size_t r = 0; r < NumRows; ++r) {
      const ByteGroup& row_group = *reinterpret_cast<const ByteGroup*>(
          reinterpret_cast<const std::byte*>(row_groups) + r * row_bytes);
      const __m512i offset = _mm512_mullo_epi32(zeros, _mm512_set1_epi32(row_group.sum));
      const __m512i sum = _mm512_sub_epi32(sums[r].columns(), offset);
      totals[r] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                          _mm512_mul_ps(scales, _mm512_set1_ps(row_group.scale)), totals[r]);
    }
  }
  float* out = args.out + first_row * args.out_stride + panel_index * kPanelColumns;
  for (std::size_t r = 0; r < NumRows; ++r, out += args.out_stride) {
    _mm512_store_ps(out, totals[r]);
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
