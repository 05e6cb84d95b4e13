#include "kernels/cpu/transpose_loops.h"

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/lanes.h"
#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/avx512/turn_lines.h"
#include "kernels/cpu/narrow_outer.h"

// Transposition with AVX-512 (what each function does: kernels/cpu/transpose_loops.h).

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

inline void bf16_step(const std::byte* lines, std::byte* low, std::byte* high) noexcept {
  turn_step(lines, low, high);
}

inline void widen_int8(const std::byte* tile, std::byte* steps) noexcept {
  for (std::int64_t line = 0; line < 16; ++line) {
    widen_line(_mm512_load_si512(tile + line * 64), steps + line * 128);
  }
}

inline void f32_lines(const std::byte* lines, std::byte* out, std::int64_t out_stride) noexcept {
  turn_floats(
      lines, [=](std::int64_t row, __m512 columns) __attribute__((always_inline)) {
        _mm512_store_ps(out + row * out_stride, columns);
      });
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
