#include "tests/support/amx_products.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/tile_environment.h"

namespace moesaic::test {
namespace {

float even_bf16(std::uint32_t word) {
  return std::bit_cast<float>(word << 16);
}
float odd_bf16(std::uint32_t word) {
  return std::bit_cast<float>(word & 0xffff0000U);
}

// One row of C from one row of A. All 16 columns are computed, whatever the shape, so that the
// inner loops become vectors.
[[gnu::always_inline]] inline void add_bf16(const AmxProduct& product, const AmxRow& a,
                                            AmxRow& sums) {
  float even[kAmxRowWords] = {};
  float odd[kAmxRowWords] = {};
  for (std::size_t k = 0; k < product.depth; ++k) {
    const AmxRow& b = product.b[k];
    for (std::size_t c = 0; c < kAmxRowWords; ++c) {
      even[c] = std::fma(even_bf16(a[k]), even_bf16(b[c]), even[c]);
      odd[c] = std::fma(odd_bf16(a[k]), odd_bf16(b[c]), odd[c]);
    }
  }
  for (std::size_t c = 0; c < kAmxRowWords; ++c) {
    const float sum = std::bit_cast<float>(sums[c]) + (even[c] + odd[c]);
    sums[c] = std::bit_cast<std::uint32_t>(sum);
  }
}

enum class Bytes { s8, u8 };

// Byte `shift` / 8 of a word. Shifts of whole words become vectors, conversions to bytes do not.
template <Bytes kind>
int byte_at(int shift, std::uint32_t word) {
  const std::uint32_t high = word << (24 - shift);
  return kind == Bytes::s8 ? static_cast<int>(high) >> 24 : static_cast<int>(high >> 24);
}

// The same for bytes; the sums wrap around.
template <Bytes A, Bytes B>
[[gnu::always_inline]] inline void add_int8(const AmxProduct& product, const AmxRow& a,
                                            AmxRow& sums) {
  for (std::size_t k = 0; k < product.depth; ++k) {
    const AmxRow& b = product.b[k];
    for (int shift = 0; shift < 32; shift += 8) {
      const int factor = byte_at<A>(shift, a[k]);
      for (std::size_t c = 0; c < kAmxRowWords; ++c) {
        sums[c] += static_cast<std::uint32_t>(factor * byte_at<B>(shift, b[c]));
      }
    }
  }
}

[[gnu::always_inline]] inline void add_row(const AmxProduct& product, const AmxRow& a,
                                           AmxRow& sums) {
  switch (product.operation) {
    case AmxOperation::tdpbssd:
      return add_int8<Bytes::s8, Bytes::s8>(product, a, sums);
    case AmxOperation::tdpbsud:
      return add_int8<Bytes::s8, Bytes::u8>(product, a, sums);
    case AmxOperation::tdpbusd:
      return add_int8<Bytes::u8, Bytes::s8>(product, a, sums);
    case AmxOperation::tdpbuud:
      return add_int8<Bytes::u8, Bytes::u8>(product, a, sums);
    default:
      return add_bf16(product, a, sums);
  }
}

[[gnu::always_inline]] inline void multiply_rows(const AmxProduct& product) {
  for (std::size_t row = 0; row < product.rows; ++row) {
    AmxRow sums = product.c[row];
    add_row(product, product.a[row], sums);
    std::copy_n(sums.begin(), product.columns, product.c[row].begin());
  }
}

// The same source twice: std::fma is an instruction in the first and a slow call of the C library
// in the second. Both round once.
[[gnu::noinline, gnu::target("avx2,fma")]] void multiply_with_fma(const AmxProduct& product) {
  multiply_rows(product);
}
[[gnu::noinline]] void multiply_without_fma(const AmxProduct& product) {
  multiply_rows(product);
}

}  // namespace

void multiply(const AmxProduct& product) {
  const bool has_fma = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const TileEnvironment environment;
  has_fma ? multiply_with_fma(product) : multiply_without_fma(product);
}

}  // namespace moesaic::test
