#include "tests/kernels/gemm_models.h"

#include <algorithm>
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

float dpbf16_group_product(std::span<const BFloat16> x, std::span<const BFloat16> codes,
                           std::int64_t group_depth, std::span<const CodeGroup> groups) {
  float total = 0;
  for (std::int64_t first = 0; first < padded_depth(x); first += group_depth) {
    float sum = 0;
    for (std::int64_t k = first; k < first + group_depth; k += 2) {
      sum = flushed_fma(element(x, k + 1), element(codes, k + 1), sum);
      sum = flushed_fma(element(x, k), element(codes, k), sum);
    }
    total = flushed_fma(sum, groups[static_cast<std::size_t>(first / group_depth)].scale, total);
  }
  return total;
}

float dpbf16_parity_product(std::span<const BFloat16> x, std::span<const BFloat16> codes,
                            std::span<const CodeGroup> groups) {
  float total = 0;
  for (std::int64_t step = 0; step < padded_depth(x); step += kStepDepth) {
    float sums[2] = {};
    float pairs[16] = {};
    for (std::int64_t i = 0; i < 16; ++i) {
      const std::int64_t half = i / 8 * 16;
      const std::int64_t k = step + half + i % 8;
      float& sum = sums[i % 2];
      sum = flushed_fma(element(x, k + 8), element(codes, k + 8), sum);
      sum = flushed_fma(element(x, k), element(codes, k), sum);
      pairs[i] = flushed_add(element(x, k), element(x, k + 8));
    }
    for (int distance = 8; distance > 0; distance /= 2) {
      for (int i = 0; i < distance; ++i) pairs[i] = flushed_add(pairs[i], pairs[i + distance]);
    }
    const CodeGroup& group = groups[static_cast<std::size_t>(step / kStepDepth)];
    float sum = flushed_add(sums[0], sums[1]);
    if (group.offset) sum = flushed_fma(*group.offset, pairs[0], sum);
    total = flushed_fma(sum, group.scale, total);
  }
  return total;
}

float int8_group_product(std::span<const float> x, std::span<const BFloat16> codes,
                         std::span<const CodeGroup> groups) {
  constexpr std::size_t kGroup = 128;
  float total = 0;
  for (std::size_t first = 0; first < x.size(); first += kGroup) {
    const std::span<const float> values = x.subspan(first, std::min(kGroup, x.size() - first));
    float amax = 0;
    bool finite = true;
    for (const float value : values) {
      amax = std::max(amax, std::fabs(value));
      finite = finite && std::isfinite(value);
    }
    const bool zeros = !finite || amax < 0x1p-100F;
    const float x_scale = !finite ? NAN : zeros ? 0 : amax / 127;
    const CodeGroup& group = groups[first / kGroup];
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < values.size() && !zeros; ++i) {
      const auto code = static_cast<std::int64_t>(std::nearbyint(values[i] * (127 / amax)));
      sum +=
          code * static_cast<std::int64_t>(to_float(codes[first + i]) + group.offset.value_or(0));
    }
    total = flushed_fma(static_cast<float>(sum), flush(group.scale * x_scale), total);
  }
  return total;
}

float f32_product(std::span<const float> x, std::span<const float> w) {
  float sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum = std::fma(x[k], w[k], sum);
  return sum;
}

}  // namespace moesaic
