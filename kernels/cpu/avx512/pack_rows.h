#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/gemm_kernel.h"

// How the kernels that need AVX-512 bring rows into their packed form. Internal to each of them.

namespace moesaic {
namespace {

enum class RowForm { floats, rounded_floats, bf16 };

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// `count` lanes, or all; none if it is negative.
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
}

inline __m512i load_bits(const float* from, __mmask16 mask) {
  return _mm512_maskz_loadu_epi32(mask, from);
}
inline __m512i load_bits(const BFloat16* from, __mmask16 mask) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16);
}

/// to_bfloat16 as a float's bits. VCVTNEPS2BF16 is no substitute: it takes subnormals for zero, of
/// which the largest round to the smallest normal number.
inline __m512i round_bits(__m512i bits) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
  const __m512i result =
      _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));  // quiet
  return _mm512_and_si512(result, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
}

/// One row; its steps go `step_stride` bytes apart.
template <RowForm Form, typename Element>
void pack_row(const Element* source, std::int64_t depth, std::byte* out, std::size_t step_stride) {
  for (std::int64_t k = 0; k < round_up(depth, kStepDepth); k += kStepDepth, out += step_stride) {
    if constexpr (Form == RowForm::bf16 && sizeof(Element) == 2) {
      if (k + kStepDepth <= depth) {
        _mm512_store_si512(out, _mm512_loadu_si512(source + k));
        continue;
      }
    }
    for (std::int64_t i = 0; i < kStepDepth; i += 16) {
      __m512i bits = load_bits(source + k + i, first_lanes(depth - k - i));
      if constexpr (Form != RowForm::floats && sizeof(Element) == 4) bits = round_bits(bits);
      if constexpr (Form == RowForm::bf16) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + i * 2),
                           _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
      } else {
        _mm512_store_si512(out + i * 4, bits);
      }
    }
  }
}

/// Rows lie anywhere, and the CPU's own prefetching begins anew with each: asks for the start of
/// one that comes soon.
inline void ask_for_row(const RowSource& source, std::int64_t row) {
  constexpr std::int64_t kAhead = 2;
  constexpr std::int64_t kLines = 8;
  if (row + kAhead < source.num_rows) prefetch_lines(source.rows[row + kAhead], kLines);
}

template <RowForm Form>
void pack_row(const RowSource& source, std::int64_t row, std::byte* out, std::size_t step_stride) {
  ask_for_row(source, row);
  if (source.element == RowSource::Element::f32) {
    pack_row<Form>(reinterpret_cast<const float*>(source.rows[row]), source.depth, out,
                   step_stride);
  } else {
    pack_row<Form>(reinterpret_cast<const BFloat16*>(source.rows[row]), source.depth, out,
                   step_stride);
  }
}

template <RowForm Form>
void pack_rows(const RowSource& source, std::byte* out) noexcept {
  constexpr bool kWords = Form == RowForm::bf16;
  const std::size_t stride = kWords ? bf16_row_bytes(source.depth) : float_row_bytes(source.depth);
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += stride) {
    pack_row<Form>(source, row, out, kWords ? kStepDepth * 2 : kStepDepth * 4);
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
