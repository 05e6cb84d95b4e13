#include "kernels/cpu/transpose_loops.h"

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/lanes.h"
#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/narrow_outer.h"

// Transposition with AVX-512 (what each function does: kernels/cpu/transpose_loops.h). Lanes of 128
// bits are gathered by loads, which need no shuffle.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// The 16 bytes at `from` and those `stride`, 2 `stride` and 3 `stride` bytes behind.
[[gnu::always_inline]] inline __m512i gather_lanes(const std::byte* from, std::int64_t stride) {
  const auto lane = [=](std::int64_t i) __attribute__((always_inline)) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(from + i * stride));
  };
  __m512i lanes = _mm512_castsi128_si512(lane(0));
  lanes = _mm512_inserti32x4(lanes, lane(1), 1);
  lanes = _mm512_inserti32x4(lanes, lane(2), 2);
  return _mm512_inserti32x4(lanes, lane(3), 3);
}

/// Eight lines of a bf16 panel, 16 columns by 16 k, as eight lines of the transposed one. Words of
/// two columns by two k are turned in place, the pairs of columns by gathering.
[[gnu::always_inline]] inline void transpose_half_step(const std::byte* lines, std::byte* out) {
  const __m512i turn =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  MOESAIC_UNROLL
  for (std::int64_t lane = 0; lane < 4; ++lane) {
    const __m512i even = _mm512_shuffle_epi8(gather_lanes(lines + lane * 16, 128), turn);
    const __m512i odd = _mm512_shuffle_epi8(gather_lanes(lines + lane * 16 + 64, 128), turn);
    _mm512_store_si512(out + lane * 128, _mm512_unpacklo_epi64(even, odd));
    _mm512_store_si512(out + lane * 128 + 64, _mm512_unpackhi_epi64(even, odd));
  }
}

inline void bf16_step(const std::byte* lines, std::byte* low, std::byte* high) noexcept {
  transpose_half_step(lines, low);
  transpose_half_step(lines + kTileBytes / 2, high);
}

/// The topmost bytes as floats.
inline __m512i to_floats(__m512i top) {
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24)));
}

/// The bf16 words of the bytes at two places of each dword, exact.
template <int First>
[[gnu::always_inline]] inline __m512i widen_pair(__m512i codes) {
  const __m512i even = to_floats(_mm512_slli_epi32(codes, 24 - 8 * First));
  const __m512i odd = to_floats(_mm512_slli_epi32(codes, 16 - 8 * First));
  return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(even, 16), odd);
}

inline void widen_int8(const std::byte* tile, std::byte* steps) noexcept {
  for (std::int64_t line = 0; line < 16; ++line) {
    const __m512i codes = _mm512_load_si512(tile + line * 64);
    _mm512_store_si512(steps + line * 128, widen_pair<0>(codes));
    _mm512_store_si512(steps + line * 128 + 64, widen_pair<2>(codes));
  }
}

/// Four rows of lane-wise 4 x 4 floats each become columns.
[[gnu::always_inline]] inline void transpose_lanes(const __m512 (&in)[4], __m512 (&out)[4]) {
  const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(in[0], in[1]));
  const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(in[0], in[1]));
  const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(in[2], in[3]));
  const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(in[2], in[3]));
  out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
  out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
  out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
  out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
}

inline void f32_lines(const std::byte* lines, std::byte* out, std::int64_t out_stride) noexcept {
  MOESAIC_UNROLL
  for (std::int64_t lane = 0; lane < 4; ++lane) {
    __m512 in[4];
    MOESAIC_UNROLL
    for (std::int64_t i = 0; i < 4; ++i) {
      in[i] = _mm512_castsi512_ps(gather_lanes(lines + lane * 16 + i * 64, 256));
    }
    __m512 columns[4];
    transpose_lanes(in, columns);
    MOESAIC_UNROLL
    for (std::int64_t i = 0; i < 4; ++i)
      _mm512_store_ps(out + (lane * 4 + i) * out_stride, columns[i]);
  }
}

/// Elements of a row as the bits of floats; zeros for a row beyond the source.
template <typename Element>
[[gnu::always_inline]] inline __m512i row_bits(const RowSource& source, std::int64_t row,
                                               std::int64_t column, __mmask16 mask) {
  if (row >= source.num_rows) return _mm512_setzero_si512();
  return load_bits(reinterpret_cast<const Element*>(source.rows[row]) + column, mask);
}

template <typename Element>
void load_block_of(const RowSource& source, const BlockStart& at, std::byte* lines) {
  const __mmask16 mask = first_lanes(source.depth - at.column);
  for (std::int64_t row = 0; row < 16; ++row) {
    _mm512_store_si512(lines + row * 64, row_bits<Element>(source, at.row + row, at.column, mask));
  }
}

/// 32 rows by 16 columns of floats, as a step of a panel.
inline void round_block(const RowSource& source, const BlockStart& at, std::byte* lines) {
  const __mmask16 mask = first_lanes(source.depth - at.column);
  for (std::int64_t row = 0; row < 32; row += 2, lines += 64) {
    const __m512i even = round_bits(row_bits<float>(source, at.row + row, at.column, mask));
    const __m512i odd = round_bits(row_bits<float>(source, at.row + row + 1, at.column, mask));
    _mm512_store_si512(lines, _mm512_or_si512(_mm512_srli_epi32(even, 16), odd));
  }
}

inline __m512i row_words(const RowSource& source, const BlockStart& at, __mmask32 mask) {
  if (at.row >= source.num_rows) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(
      mask, reinterpret_cast<const BFloat16*>(source.rows[at.row]) + at.column);
}

/// Words of two rows in pairs, in each half of the columns.
inline void interleave_rows(const RowSource& source, const BlockStart& at, std::byte* low,
                            std::byte* high) {
  const std::int64_t left = source.depth - at.column;
  const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
  const __m512i half = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                        8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i other = _mm512_add_epi16(half, _mm512_set1_epi16(16));
  for (std::int64_t row = 0; row < 32; row += 2) {
    const __m512i even = row_words(source, {at.row + row, at.column}, mask);
    const __m512i odd = row_words(source, {at.row + row + 1, at.column}, mask);
    _mm512_store_si512(low + row * 32, _mm512_permutex2var_epi16(even, half, odd));
    if (high == nullptr) continue;
    _mm512_store_si512(high + row * 32, _mm512_permutex2var_epi16(even, other, odd));
  }
}

inline void load_block(const RowSource& source, const BlockStart& at, std::byte* lines) noexcept {
  source.element == RowSource::Element::f32 ? load_block_of<float>(source, at, lines)
                                            : load_block_of<BFloat16>(source, at, lines);
}

inline void bf16_blocks(const RowSource& source, const BlockStart& at, std::byte* low,
                        std::byte* high) noexcept {
  if (source.element == RowSource::Element::bf16) return interleave_rows(source, at, low, high);
  round_block(source, at, low);
  if (high != nullptr) round_block(source, {at.row, at.column + 16}, high);
}

inline void stream_rows(const MatrixView<const float>& from, float* to,
                        std::int64_t to_stride) noexcept {
  for (std::int64_t row = 0; row < from.rows(); ++row, to += to_stride) {
    const float* const values = from.data() + row * from.stride();
    for (std::int64_t i = 0; i < from.cols(); i += 16) {
      _mm512_stream_ps(to + i, _mm512_loadu_ps(values + i));
    }
  }
  _mm_sfence();  // so that whoever waits for this job sees them
}

template <typename Element>
void scale_elements(const Element* row, std::int64_t count, const float* scales, float* out) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_lanes(count - i);
    const __m512 scale = _mm512_maskz_loadu_ps(mask, scales + i);
    _mm512_mask_storeu_ps(out + i, mask,
                          _mm512_mul_ps(_mm512_castsi512_ps(load_bits(row + i, mask)), scale));
  }
}

inline void scale_row(const RowSource& source, std::int64_t row, const float* scales,
                      float* out) noexcept {
  if (source.element == RowSource::Element::f32) {
    scale_elements(reinterpret_cast<const float*>(source.rows[row]), source.depth, scales, out);
  } else {
    scale_elements(reinterpret_cast<const BFloat16*>(source.rows[row]), source.depth, scales, out);
  }
}

MOESAIC_END_TARGET

}  // namespace

extern const TransposeLoops avx512_transpose_loops;
constinit const TransposeLoops avx512_transpose_loops{
    .bf16_step = bf16_step,
    .widen_int8 = widen_int8,
    .f32_lines = f32_lines,
    .load_block = load_block,
    .bf16_blocks = bf16_blocks,
    .stream_rows = stream_rows,
    .scale_row = scale_row,
    .narrow_product = narrow_product,
};

}  // namespace moesaic
