#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/target_region.h"
#include "kernels/gradient_kernels.h"
#ifndef MOESAIC_BEGIN_LANES
#include "kernels/cpu/scalar/lanes.h"
#endif

// The gradient kernels: plain loops, of which compilers make vectors of the instruction set between
// whose marks they stand. Conversions of 64-bit integers need AVX-512 for that.

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline bool add_fixed(const FixedPoint& form, const float* x, std::int64_t n,
                      std::int64_t* sums) noexcept {
  const float limit = form.limit;
  const double per_one = form.per_one;
  std::int64_t beyond = 0;
  std::uint64_t overflow = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool fits = std::fabs(x[i]) < limit;
    beyond |= fits ? 0 : 1;
    const double units = static_cast<double>(fits ? x[i] : 0.0F) * per_one;
    const auto rounded = static_cast<std::int64_t>(units + std::copysign(0.5, units));
    const auto before = static_cast<std::uint64_t>(sums[i]);
    const std::uint64_t after = before + static_cast<std::uint64_t>(rounded);
    overflow |= (before ^ after) & (static_cast<std::uint64_t>(rounded) ^ after);
    sums[i] = static_cast<std::int64_t>(after);
  }
  return beyond == 0 && overflow >> 63 == 0;
}

inline bool any_beyond(const std::int64_t* x, std::int64_t n, std::int64_t limit) noexcept {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < n; ++i) found |= x[i] > limit || x[i] < -limit ? 1 : 0;
  return found != 0;
}

inline double sum_of_squares(const std::int64_t* x, std::int64_t n) noexcept {
  constexpr std::int64_t kSums = 16;
  double sums[kSums] = {};
  const std::int64_t whole = n - n % kSums;
  for (std::int64_t i = 0; i < whole; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (std::int64_t i = whole; i < n; ++i) {
    const auto value = static_cast<double>(x[i]);
    sums[i - whole] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

inline void adam(const AdamUpdate& by, const AdamRows& rows, std::int64_t n) noexcept {
  const AdamUpdate own = by;  // which no store changes
  const std::int64_t* const sums = rows.sums;
  float* __restrict const parameters = rows.parameters;
  float* __restrict const first = rows.first;
  float* __restrict const second = rows.second;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto gradient = static_cast<float>(static_cast<double>(sums[i]) * own.scale);
    first[i] += own.first_share * (gradient - first[i]);
    second[i] = second[i] * own.second_kept + own.second_share * gradient * gradient;
    const float denominator = std::sqrt(second[i]) / own.second_root + own.epsilon;
    parameters[i] = parameters[i] * own.decay + own.step_size * (first[i] / denominator);
  }
}

constexpr GradientKernels make_gradient_kernels() {
  return {.add_fixed = add_fixed,
          .any_beyond = any_beyond,
          .sum_of_squares = sum_of_squares,
          .adam = adam};
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
