#pragma once

#include <bit>

#include "kernels/cpu/avx2/pack_rows.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/cpu/token_scale.h"

// How the AVX2 int8 kernels bring rows into their packed form: int8 widened to int16, and a scale
// a row. Internal to each of them.

namespace moesaic {
namespace {

inline float word_row_scale(const TileArgs& args, std::int64_t row) {
  const std::int64_t depth = args.matrix->depth;
  const std::byte* packed =
      args.packed_rows + static_cast<std::size_t>(row) * word_row_bytes(depth);
  return *reinterpret_cast<const float*>(packed + round_up(depth, kIntStepDepth) * 2);
}

MOESAIC_BEGIN_TARGET("avx2,fma")

/// 8 elements' bits from k on; those beyond the row are zero.
template <typename Element>
inline __m256i load_bits_padded(const Element* source, std::int64_t k, std::int64_t depth) {
  if (k + 8 <= depth) return load_bits(source + k);
  Element tail[8] = {};
  if (k < depth) std::copy(source + k, source + depth, tail);
  return load_bits(tail);
}

/// store(k, codes) for every eight codes of a row, widened to int16, up to a whole step. Returns
/// the row's scale.
template <typename Element, typename Store>
float quantize_row(const Element* source, std::int64_t depth, Store&& store) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (std::int64_t k = 0; k < depth; k += 8) {
    const __m256i bits = load_bits_padded(source, k, depth);
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
  }
  std::uint32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
  const TokenScale token = token_scale(*std::max_element(lanes, lanes + 8));
  const __m256 inverse = _mm256_set1_ps(token.inverse);
  const __m256i valid = _mm256_set1_epi32(token.inverse == 0 ? 0 : -1);
  for (std::int64_t k = 0; k < round_up(depth, kIntStepDepth); k += 8) {
    const __m256 values = _mm256_castsi256_ps(load_bits_padded(source, k, depth));
    const __m256i codes =
        _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(values, inverse)), valid);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(codes, codes), 0x08);
    store(k, _mm256_castsi256_si128(words));
  }
  return token.scale;
}

struct StoreWords {
  std::byte* out;

  void operator()(std::int64_t k, __m128i words) const {
    _mm_store_si128(reinterpret_cast<__m128i*>(out + k * 2), words);
  }
};

[[gnu::noinline]] inline void pack_all_word_rows(const RowSource& source, std::byte* out) {
  const std::int64_t codes = round_up(source.depth, kIntStepDepth);
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += word_row_bytes(source.depth)) {
    const std::byte* from = source.rows[row];
    *reinterpret_cast<float*>(out + codes * 2) =
        source.element == RowSource::Element::f32
            ? quantize_row(reinterpret_cast<const float*>(from), source.depth, StoreWords{out})
            : quantize_row(reinterpret_cast<const BFloat16*>(from), source.depth, StoreWords{out});
  }
}

MOESAIC_END_TARGET

inline void pack_word_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and conversions round as MXCSR says
  pack_all_word_rows(source, out);
}

}  // namespace
}  // namespace moesaic
