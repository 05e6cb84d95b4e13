#include "tests/gpu/ptx_machine/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace moesaic::ptx {
namespace {

constexpr int kDepth = 16;
/// Of a zero: below that of every other product, so that terms that are zero do not count.
constexpr std::int32_t kZeroExponent = -1000;
/// To which terms are aligned if all are smaller: that of bf16's smallest number.
constexpr std::int32_t kLeastExponent = -133;

/// A number as significand * 2^exponent, the significand with the format's fractional bits.
struct Term {
  std::int32_t significand;
  std::int32_t exponent;
};

Term term_of(std::uint32_t bits) {  // of a float
  const auto field = static_cast<std::int32_t>(bits >> 23 & 0xff);
  const auto fraction = static_cast<std::int32_t>(bits & 0x7fffff);
  const std::int32_t significand = field == 0 ? fraction : fraction | 0x800000;
  return {bits >> 31 != 0 ? -significand : significand,
          significand == 0 ? kZeroExponent : std::max(field, 1) - 127};
}

/// 7 fractional bits instead of 23.
Term term_of(std::uint16_t bits) {
  const Term term = term_of(static_cast<std::uint32_t>(bits) << 16);
  return {term.significand / 65536, term.exponent};
}

std::int64_t aligned(std::int64_t significand, std::int32_t shift) {
  if (shift >= 63) return 0;
  return significand < 0 ? -(-significand >> shift) : significand >> shift;
}

/// Cut toward zero.
float to_float(double value) {
  if (std::fabs(value) >= 0x1p128) {
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(value));
  }
  const auto nearest = static_cast<float>(value);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.0F)
                                                                    : nearest;
}

struct Operands {
  const Term* a;
  const Term* b;
  int count;
};

float fused_sum(const Operands& x, float c, int fraction_bits) {
  const Term addend = term_of(std::bit_cast<std::uint32_t>(c));
  std::int32_t top = std::max(kLeastExponent, addend.exponent);
  for (int k = 0; k < x.count; ++k) top = std::max(top, x.a[k].exponent + x.b[k].exponent);
  const auto cut = [&](std::int64_t significand, int bits, std::int32_t exponent) {
    return aligned(significand << (fraction_bits - bits), top - exponent);
  };
  std::int64_t sum = cut(addend.significand, 23, addend.exponent);
  for (int k = 0; k < x.count; ++k) {
    sum += cut(std::int64_t{x.a[k].significand} * x.b[k].significand, 14,
               x.a[k].exponent + x.b[k].exponent);
  }
  return to_float(std::ldexp(static_cast<double>(sum), top - fraction_bits));
}

bool is_finite(std::uint16_t bits) {
  return (bits & 0x7f80) != 0x7f80;
}

float value_of(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// With an infinity or a NaN.
float special_sum(const std::uint16_t* a, const std::uint16_t* b, float c) {
  double sum = c;
  for (int k = 0; k < kDepth; ++k) sum += static_cast<double>(value_of(a[k])) * value_of(b[k]);
  return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffU) : static_cast<float>(sum);
}

float sum_of(Family family, const Term* a, const Term* b, float c) {
  if (family == Family::hopper) return fused_sum({a, b, kDepth}, c, 25);
  return fused_sum({a + 8, b + 8, 8}, fused_sum({a, b, 8}, c, 24), 24);
}

/// An e4m3 scale, 3 fractional bits; zero counts as 2^-126.
Term scale_term(std::uint8_t code) {
  const std::int32_t field = code >> 3 & 15;
  const std::int32_t significand = (code & 7) | (field == 0 ? 0 : 8);
  return {significand, significand == 0 ? -126 : std::max(field, 1) - 7};
}

/// The exact sum of 16 products, 2 fractional bits.
std::int64_t group_sum(const std::uint8_t* a, const std::uint8_t* b) {
  constexpr std::int32_t kTwice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  std::int64_t sum = 0;
  for (int k = 0; k < 16; ++k) {
    const std::int32_t product = kTwice[a[k] & 7] * kTwice[b[k] & 7];
    sum += ((a[k] ^ b[k]) & 8) != 0 ? -product : product;
  }
  return sum;
}

bool is_nan_scale(std::uint8_t code) {
  return (code & 0x7f) == 0x7f;
}

/// Of one row and one column.
float scaled_row_sum(const std::uint8_t* a, const std::uint8_t* a_scales, const std::uint8_t* b,
                     const std::uint8_t* b_scales, float c) {
  constexpr int kFractionBits = 35;
  constexpr int kGroups = 4;
  if (std::isnan(c) || std::any_of(a_scales, a_scales + kGroups, is_nan_scale) ||
      std::any_of(b_scales, b_scales + kGroups, is_nan_scale)) {
    return std::bit_cast<float>(0x7fffffffU);
  }
  if (std::isinf(c)) return c;
  const Term addend = term_of(std::bit_cast<std::uint32_t>(c));
  std::int32_t top = addend.exponent;
  Term left[kGroups];
  Term right[kGroups];
  for (int i = 0; i < kGroups; ++i) {
    left[i] = scale_term(a_scales[i]);
    right[i] = scale_term(b_scales[i]);
    top = std::max(top, left[i].exponent + right[i].exponent);
  }
  std::int64_t sum =
      aligned(std::int64_t{addend.significand} << (kFractionBits - 23), top - addend.exponent);
  for (int i = 0; i < kGroups; ++i) {
    const std::int64_t significand = group_sum(a + 16 * i, b + 16 * i) * left[i].significand *
                                     right[i].significand;  // 2 + 3 + 3 fractional bits
    sum += aligned(significand * (std::int64_t{1} << (kFractionBits - 8)),
                   top - left[i].exponent - right[i].exponent);
  }
  return to_float(std::ldexp(static_cast<double>(sum), top - kFractionBits));
}

/// Rows of an operand.
template <int Rows>
struct Matrix {
  explicit Matrix(const std::uint16_t (*rows)[kDepth]) {
    for (int row = 0; row < Rows; ++row) {
      finite[row] = std::all_of(rows[row], rows[row] + kDepth, is_finite);
      for (int k = 0; k < kDepth; ++k) terms[row][k] = term_of(rows[row][k]);
    }
  }
  Term terms[Rows][kDepth];
  bool finite[Rows];
};

}  // namespace

void mma_16x8x16(Family family, const std::uint16_t (*a)[16], const std::uint16_t (*b)[16],
                 float (*c)[8]) {
  const Matrix<16> left(a);
  const Matrix<8> right(b);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& sum = c[row][column];
      if (left.finite[row] && right.finite[column] && std::isfinite(sum)) {
        sum = sum_of(family, left.terms[row], right.terms[column], sum);
      } else {
        sum = special_sum(a[row], b[column], sum);
      }
    }
  }
}

float scaled_sum(const ScaledMatrix<1>& a, const ScaledMatrix<1>& b, float c) {
  return scaled_row_sum(a.codes[0], a.scales[0], b.codes[0], b.scales[0], c);
}

void mma_16x8x64(const ScaledMatrix<16>& a, const ScaledMatrix<8>& b, float (*c)[8]) {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      c[row][column] = scaled_row_sum(a.codes[row], a.scales[row], b.codes[column],
                                      b.scales[column], c[row][column]);
    }
  }
}

float mma_sum(Family family, const std::uint16_t* a, const std::uint16_t* b, float c) {
  if (!std::all_of(a, a + kDepth, is_finite) || !std::all_of(b, b + kDepth, is_finite) ||
      !std::isfinite(c)) {
    return special_sum(a, b, c);
  }
  Term left[kDepth];
  Term right[kDepth];
  for (int k = 0; k < kDepth; ++k) {
    left[k] = term_of(a[k]);
    right[k] = term_of(b[k]);
  }
  return sum_of(family, left, right, c);
}

}  // namespace moesaic::ptx
