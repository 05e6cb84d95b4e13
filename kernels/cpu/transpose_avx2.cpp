#include "kernels/cpu/transpose_loops.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/lanes.h"
#include "kernels/cpu/avx2/pack_rows.h"
#include "kernels/cpu/narrow_outer.h"
#include "kernels/cpu/scalar/transpose.h"

// Transposition with AVX2 (what each function does: kernels/cpu/transpose_loops.h). Lanes of 128
// bits are gathered by loads, which need no shuffle.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// The 16 bytes at `from` and those `stride` bytes behind.
[[gnu::always_inline]] inline __m256i pair_lanes(const std::byte* from, std::int64_t stride) {
  const __m128i low = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i high = _mm_load_si128(reinterpret_cast<const __m128i*>(from + stride));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

inline void store_line(std::byte* out, __m256i value) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), value);
}

/// Four lines of a bf16 panel, 16 columns by 8 k, as halves of eight lines of the transposed one.
[[gnu::always_inline]] inline void transpose_quarter_step(const std::byte* lines, std::byte* out) {
  const __m256i turn = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  MOESAIC_UNROLL
  for (std::int64_t lane = 0; lane < 4; ++lane) {
    const __m256i even = _mm256_shuffle_epi8(pair_lanes(lines + lane * 16, 128), turn);
    const __m256i odd = _mm256_shuffle_epi8(pair_lanes(lines + lane * 16 + 64, 128), turn);
    store_line(out + lane * 128, _mm256_unpacklo_epi64(even, odd));
    store_line(out + lane * 128 + 64, _mm256_unpackhi_epi64(even, odd));
  }
}

inline void bf16_step(const std::byte* lines, std::byte* low, std::byte* high) noexcept {
  transpose_quarter_step(lines, low);
  transpose_quarter_step(lines + 256, low + 32);
  transpose_quarter_step(lines + 512, high);
  transpose_quarter_step(lines + 768, high + 32);
}

/// The topmost bytes as floats.
inline __m256i to_floats(__m256i top) {
  return _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24)));
}

/// The bf16 words of the bytes at two places of each dword, exact.
template <int First>
[[gnu::always_inline]] inline __m256i widen_pair(__m256i codes) {
  const __m256i even = to_floats(_mm256_slli_epi32(codes, 24 - 8 * First));
  const __m256i odd = to_floats(_mm256_slli_epi32(codes, 16 - 8 * First));
  return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
}

inline void widen_int8(const std::byte* tile, std::byte* steps) noexcept {
  for (std::int64_t line = 0; line < 16; ++line) {
    for (std::int64_t half = 0; half < 64; half += 32) {
      const __m256i codes =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(tile + line * 64 + half));
      store_line(steps + line * 128 + half, widen_pair<0>(codes));
      store_line(steps + line * 128 + 64 + half, widen_pair<2>(codes));
    }
  }
}

/// Eight lines of eight floats, 64 bytes apart.
[[gnu::always_inline]] inline void transpose_eight(const std::byte* lines, std::byte* out,
                                                   std::int64_t out_stride) {
  MOESAIC_UNROLL
  for (std::int64_t lane = 0; lane < 2; ++lane) {
    const auto row = [=](std::int64_t i) __attribute__((always_inline)) {
      return _mm256_castsi256_ps(pair_lanes(lines + lane * 16 + i * 64, 256));
    };
    const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(row(0), row(1)));
    const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(row(0), row(1)));
    const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(row(2), row(3)));
    const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(row(2), row(3)));
    std::byte* const columns = out + lane * 4 * out_stride;
    store_line(columns, _mm256_castpd_si256(_mm256_unpacklo_pd(low01, low23)));
    store_line(columns + out_stride, _mm256_castpd_si256(_mm256_unpackhi_pd(low01, low23)));
    store_line(columns + 2 * out_stride, _mm256_castpd_si256(_mm256_unpacklo_pd(high01, high23)));
    store_line(columns + 3 * out_stride, _mm256_castpd_si256(_mm256_unpackhi_pd(high01, high23)));
  }
}

inline void f32_lines(const std::byte* lines, std::byte* out, std::int64_t out_stride) noexcept {
  for (std::int64_t half = 0; half < 2; ++half) {
    transpose_eight(lines + half * 512, out + half * 32, out_stride);
    transpose_eight(lines + half * 512 + 32, out + 8 * out_stride + half * 32, out_stride);
  }
}

template <typename Element>
[[gnu::always_inline]] inline __m256i element_bits(const RowSource& source, std::int64_t row,
                                                   std::int64_t column) {
  return load_bits(reinterpret_cast<const Element*>(source.rows[row]) + column);
}

template <typename Element>
void load_block_of(const RowSource& source, const BlockStart& at, std::byte* lines) {
  for (std::int64_t row = 0; row < 16; ++row, lines += 64) {
    store_line(lines, element_bits<Element>(source, at.row + row, at.column));
    store_line(lines + 32, element_bits<Element>(source, at.row + row, at.column + 8));
  }
}

template <typename Element>
void bf16_block_of(const RowSource& source, const BlockStart& at, std::byte* lines) {
  for (std::int64_t line = 0; line < 32; ++line, lines += 32) {
    const std::int64_t row = at.row + line / 2 * 2;
    const std::int64_t column = at.column + line % 2 * 8;
    __m256i even = element_bits<Element>(source, row, column);
    __m256i odd = element_bits<Element>(source, row + 1, column);
    if constexpr (sizeof(Element) == 4) {
      even = round_bits(even);
      odd = round_bits(odd);
    }
    store_line(lines, _mm256_or_si256(_mm256_srli_epi32(even, 16), odd));
  }
}

inline bool is_whole(const RowSource& source, const BlockStart& at, std::int64_t rows) {
  return at.row + rows <= source.num_rows && at.column + 16 <= source.depth;
}

inline void load_block(const RowSource& source, const BlockStart& at, std::byte* lines) noexcept {
  if (!is_whole(source, at, 16)) return scalar::load_block(source, at, lines);
  source.element == RowSource::Element::f32 ? load_block_of<float>(source, at, lines)
                                            : load_block_of<BFloat16>(source, at, lines);
}

inline void bf16_block(const RowSource& source, const BlockStart& at, std::byte* lines) noexcept {
  if (!is_whole(source, at, 32)) return scalar::bf16_block(source, at, lines);
  source.element == RowSource::Element::f32 ? bf16_block_of<float>(source, at, lines)
                                            : bf16_block_of<BFloat16>(source, at, lines);
}

inline void bf16_blocks(const RowSource& source, const BlockStart& at, std::byte* low,
                        std::byte* high) noexcept {
  bf16_block(source, at, low);
  if (high != nullptr) bf16_block(source, {at.row, at.column + 16}, high);
}

inline void stream_rows(const MatrixView<const float>& from, float* to,
                        std::int64_t to_stride) noexcept {
  for (std::int64_t row = 0; row < from.rows(); ++row, to += to_stride) {
    const float* const values = from.data() + row * from.stride();
    for (std::int64_t i = 0; i < from.cols(); i += 8) {
      _mm256_stream_ps(to + i, _mm256_loadu_ps(values + i));
    }
  }
  _mm_sfence();  // so that whoever waits for this job sees them
}

template <typename Element>
void scale_elements(const Element* row, std::int64_t count, const float* scales, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_castsi256_ps(load_bits(row + i)),
                                            _mm256_loadu_ps(scales + i)));
  }
  for (; i < count; ++i) out[i] = to_float(row[i]) * scales[i];
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

extern const TransposeLoops avx2_transpose_loops;
constinit const TransposeLoops avx2_transpose_loops{
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
