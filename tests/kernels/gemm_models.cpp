#include "tests/kernels/gemm_models.h"

#include <cmath>
#include <limits>

#include "kernels/format.h"

namespace moesaic {
namespace {

constexpr float kSmallestNormal = std::numeric_limits<float>::min();

float flush(float value) {
  return std::fabs(value) < kSmallestNormal ? std::copysign(0.0F, value) : value;
}

/// round(a * b + c) with subnormal operands and results flushed. A result counts as subnormal if it
/// is below the smallest normal number when rounded to 24 bits whatever its exponent; rounded as a
/// subnormal it may have become that number.
float flushed_fma(float a, float b, float c) {
  a = flush(a);
  b = flush(b);
  c = flush(c);
  const float result = std::fma(a, b, c);
  if (result == 0 || !(std::fabs(result) <= kSmallestNormal)) return result;
  float& smaller = std::fabs(a) < std::fabs(b) ? a : b;
  smaller *= 0x1p32F;
  const float scaled = std::fma(a, b, c * 0x1p32F);
  return std::fabs(scaled) < kSmallestNormal * 0x1p32F ? std::copysign(0.0F, result) : result;
}

/// The sum of two floats is exact where it is subnormal.
float flushed_add(float a, float b) {
  return flush(flush(a) + flush(b));
}

float element(std::span<const BFloat16> values, std::int64_t k) {
  const auto index = static_cast<std::size_t>(k);
  return index < values.size() ? to_float(values[index]) : 0.0F;
}

std::int64_t padded_depth(std::span<const BFloat16> values) {
  return round_up(static_cast<std::int64_t>(values.size()), kStepDepth);
}

}  // namespace

float tile_order_product(std::span<const BFloat16> x, std::span<const BFloat16> w) {
  float sum = 0;
  for (std::int64_t step = 0; step < padded_depth(x); step += kStepDepth) {
    float even = 0;
    float odd = 0;
    for (std::int64_t k = step; k < step + kStepDepth; k += 2) {
      even = flushed_fma(element(x, k), element(w, k), even);
      odd = flushed_fma(element(x, k + 1), element(w, k + 1), odd);
    }
    sum = flushed_add(sum, flushed_add(even, odd));
  }
  return sum;
}

float dpbf16_product(std::span<const BFloat16> x, std::span<const BFloat16> w) {
  float sum = 0;
  for (std::int64_t k = 0; k < padded_depth(x); k += 2) {
    sum = flushed_fma(element(x, k + 1), element(w, k + 1), sum);
    sum = flushed_fma(element(x, k), element(w, k), sum);
  }
  return sum;
}

float f32_product(std::span<const float> x, std::span<const float> w) {
  float sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum = std::fma(x[k], w[k], sum);
  return sum;
}

}  // namespace moesaic
