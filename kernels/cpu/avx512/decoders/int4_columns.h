#pragma once

#include <bit>
#include <cstring>

#include "kernels/cpu/avx512/decoders/int4_panel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Decodes int4_group by columns: 32 codes of one column are looked up at a time, among the sixteen
/// values that codes of the column have in a group. Values as Int4GroupDecoder has them.
class Int4Columns {
 public:
  /// Of the codes, which the panel starts with.
  static constexpr std::int64_t kStepBytes = int4_group_format::kStepBytes;

  Int4Columns(const PackedMatrix& matrix, std::int64_t panel)
      : panel_(matrix, panel),
        log_steps_(std::countr_zero(static_cast<std::uint64_t>(matrix.layout.group / kStepDepth))) {
  }

  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return panel_.scales_at(step >> log_steps_);
  }

  /// A step at `out` [16 columns][32 k] in bf16.
  [[gnu::always_inline]] void store(std::int64_t step, std::byte* out) {
    if (step >= group_end_) read_scales(step);
    const std::byte* const codes = panel_.codes(step);
    const __m512i places = code_places();
    const auto column_codes = [](const std::byte* at) __attribute__((always_inline)) {
      long long codes_of_16_k = 0;
      std::memcpy(&codes_of_16_k, at, 8);
      return codes_of_16_k;
    };
    MOESAIC_UNROLL
    for (int column = 0; column < 16; ++column) {
      const std::byte* const at = codes + 8 * column;  // blocks of 8 columns have 64 bytes
      const __m512i first_half = _mm512_set1_epi64(column_codes(at));
      const __m512i halves = _mm512_mask_set1_epi64(first_half, 0xf0, column_codes(at + 128));
      const __m512i index = _mm512_multishift_epi64_epi8(places, halves);
      const auto* const table = reinterpret_cast<const __m256i*>(tables_[column]);
      const __m512i values = _mm512_broadcast_i64x4(_mm256_load_si256(table));
      _mm512_store_si512(out + 64 * column, _mm512_permutexvar_epi16(index, values));
    }
  }

 private:
  /// For each word, where its k has its code among the 64 bits of 16 k of a column: those of even k
  /// come first. Of what the word gets there, its low four bits count (tables are there twice).
  static __m512i code_places() {
    constexpr int kOdd = 32 << 16;
    const __m512i first = _mm512_setr_epi32(
        0 | kOdd, 4 * 0x10001 | kOdd, 8 * 0x10001 | kOdd, 12 * 0x10001 | kOdd, 16 * 0x10001 | kOdd,
        20 * 0x10001 | kOdd, 24 * 0x10001 | kOdd, 28 * 0x10001 | kOdd, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_shuffle_i64x2(first, first, 0x44);
  }

  void read_scales(std::int64_t step) {
    const std::int64_t group = step >> log_steps_;
    group_end_ = (group + 1) << log_steps_;
    const __m512 factors = panel_.scales(group);
    const __m512i eight = _mm512_set1_epi32(int4_group_format::kCompactZero);
    const __m512i differences = _mm512_sub_epi32(eight, panel_.zeros(group));
    alignas(64) float factor[16];
    alignas(64) float offset[16];
    _mm512_store_ps(factor, factors);
    _mm512_store_ps(offset, _mm512_mul_ps(_mm512_cvtepi32_ps(differences), factors));
    // From memory a load brings a number to all lanes, from a register a shuffle.
    asm volatile("" : "+m"(factor), "+m"(offset));
    const __m512 integers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const auto values = [&](int column) __attribute__((always_inline)) {
      return _mm512_fmadd_ps(integers, _mm512_set1_ps(factor[column]),
                             _mm512_set1_ps(offset[column]));
    };
    MOESAIC_UNROLL
    for (int column = 0; column < 16; column += 2) {
      const auto words = (__m512i)_mm512_cvtne2ps_pbh(values(column + 1), values(column));
      _mm512_store_si512(tables_[column], words);
    }
  }

  Int4Panel panel_;
  int log_steps_;  // of a group
  std::int64_t group_end_ = 0;
  alignas(64) std::byte tables_[16][32];  // bf16 by code
};

/// Instead of that of decoders by lines.
[[gnu::always_inline]] inline void store_step(Int4Columns& columns, std::int64_t step,
                                              std::byte* out) {
  columns.store(step, out);
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
