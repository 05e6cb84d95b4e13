#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/lanes.h"
#include "kernels/cpu/avx512/pack_rows.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"

// The sum over one group of k, of one row and one panel, by VDPBF16PS; and the rows it reads.
// Internal to each kernel that uses it.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Lines hold 16 columns x 2 k, as in a bf16 panel: line l of a step meets the l-th pair of a row.
struct PairSum {
  static constexpr int kLines = 8;             // of a group
  static constexpr std::size_t kMaxRows = 12;  // whose sums and totals fit the registers

  static std::size_t row_bytes(std::int64_t depth) noexcept { return bf16_row_bytes(depth); }
  static void pack(const RowSource& source, std::byte* out) noexcept {
    pack_rows<RowForm::bf16>(source, out);
  }

  [[gnu::always_inline]] void add(const std::byte* row, int line, __m512i words) {
    const __m512i pair = _mm512_set1_epi32(*reinterpret_cast<const int*>(row + line * 4));
    sum = _mm512_dpbf16_ps(sum, (__m512bh)pair, (__m512bh)words);
  }
  void clear() { sum = _mm512_setzero_ps(); }
  [[nodiscard]] __m512 columns() const { return sum; }

  __m512 sum;
};

/// Lines hold 8 columns x 2 parities x 2 k, columns 0 to 7 in even lines, 8 to 15 in odd ones.
/// Lines 8 h + 2 r and 8 h + 2 r + 1 have k = 16 h + 2 r + parity and that + 8, which is how a
/// row's step is packed: fours of bf16 for h = 0, 1 and r = 0 to 3. A column is the sum of its
/// parities. Behind its steps a row has the sum of the values of each step, f32.
struct ParitySum {
  static constexpr int kLines = 16;
  static constexpr std::size_t kMaxRows = 8;

  static std::size_t row_bytes(std::int64_t depth) noexcept {
    return packed_row_stride(step_count(Format::int4_group, depth) * (kStepDepth * 2 + 4));
  }
  static const float* step_sums(const std::byte* row, std::int64_t depth) noexcept {
    return reinterpret_cast<const float*>(row + round_up(depth, kStepDepth) * 2);
  }
  static void pack(const RowSource& source, std::byte* out) noexcept {
    const TileEnvironment environment;  // sums round as MXCSR says
    pack_all(source, out);
  }

  [[gnu::always_inline]] void add(const std::byte* row, int line, __m512i words) {
    const auto* four = reinterpret_cast<const long long*>(row + line / 2 * 8);
    __m512& sum = line % 2 == 0 ? left : right;
    sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi64(*four), (__m512bh)words);
  }
  void clear() { left = right = _mm512_setzero_ps(); }
  [[nodiscard]] __m512 columns() const {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    return _mm512_add_ps(_mm512_permutex2var_ps(left, even, right),
                         _mm512_permutex2var_ps(left, odd, right));
  }

  __m512 left;
  __m512 right;

 private:
  [[gnu::noinline]] static void pack_all(const RowSource& source, std::byte* out) {
    for (std::int64_t row = 0; row < source.num_rows; ++row, out += row_bytes(source.depth)) {
      pack_row<RowForm::bf16>(source, row, out, kStepDepth * 2);
      auto* step_sum = const_cast<float*>(step_sums(out, source.depth));
      std::byte* at = out;
      for (std::int64_t k = 0; k < source.depth; k += kStepDepth, at += kStepDepth * 2) {
        const __m512i fours = _mm512_permutexvar_epi16(order(), _mm512_load_si512(at));
        _mm512_store_si512(at, fours);
        const __m512i ones = _mm512_set1_epi16(0x3f80);
        const __m512 pairs = _mm512_dpbf16_ps(_mm512_setzero_ps(), (__m512bh)fours, (__m512bh)ones);
        *step_sum++ = sum_lanes({pairs});
      }
    }
  }
  /// Of the words of a step: 0, 8, 1, 9, 2, 10, ... of either half.
  static __m512i order() {
    return _mm512_setr_epi32(0x080000, 0x090001, 0x0a0002, 0x0b0003, 0x0c0004, 0x0d0005, 0x0e0006,
                             0x0f0007, 0x180010, 0x190011, 0x1a0012, 0x1b0013, 0x1c0014, 0x1d0015,
                             0x1e0016, 0x1f0017);
  }
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
