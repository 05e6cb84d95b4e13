#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/format.h"

// Lines become those of the transposed matrix. Lanes of 128 bits are gathered by loads, which need
// no shuffle.

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
[[gnu::always_inline]] inline void turn_half_step(const std::byte* lines, std::byte* out) {
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

/// A step of a panel as eight lines each of two panels, as TransposeLoops::bf16_step has it.
[[gnu::always_inline]] inline void turn_step(const std::byte* lines, std::byte* low,
                                             std::byte* high) {
  turn_half_step(lines, low);
  turn_half_step(lines + kTileBytes / 2, high);
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

/// 16 lines of 16 floats: emit(row, the floats of the lines' column `row`) for 16 rows.
template <typename Emit>
[[gnu::always_inline]] inline void turn_floats(const std::byte* lines, const Emit& emit) {
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
    for (std::int64_t i = 0; i < 4; ++i) emit(lane * 4 + i, columns[i]);
  }
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

/// A line of int8, four k of 16 columns, as two lines of bf16.
[[gnu::always_inline]] inline void widen_line(__m512i codes, std::byte* lines) {
  _mm512_store_si512(lines, widen_pair<0>(codes));
  _mm512_store_si512(lines + 64, widen_pair<2>(codes));
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
