#include "tests/gpu/ptx_machine/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace moesaic::ptx {
namespace {

constexpr int kDepth = 16;

/// A number as significand * 2^exponent, the significand with the format's fractional bits.
struct Term {
  std::int32_t significand;
  std::int32_t exponent;
};

Term term_of(std::uint32_t bits) {  // of a float
  const auto field = static_cast<std::int32_t>(bits >> 23 & 0xff);
  const auto fraction = static_cast<std::int32_t>(bits & 0x7fffff);
  const std::int32_t significand = field == 0 ? fraction : fraction | 0x800000;
  return {bits >> 31 != 0 ? -significand : significand, std::max(field, 1) - 127};
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
  std::int32_t top = addend.exponent;
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
