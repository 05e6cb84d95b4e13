#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/vector_kernels.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kHuge = std::numeric_limits<float>::max();
inline constexpr double kEpsilon = 0x1p-24;  // half a unit in the last place of 1
inline constexpr float kUnwritten = 12345;

inline std::vector<std::int64_t> sizes() {
  std::vector<std::int64_t> result = {1000, 1024, 4097};
  for (std::int64_t n = 0; n <= 70; ++n) result.push_back(n);
  return result;
}

/// Ordinary numbers with special ones strewn in.
inline std::vector<float> special_numbers(std::int64_t count, unsigned seed) {
  constexpr float kSpecial[] = {0.0F,   -0.0F,     kInf,       -kInf,     kNan,  kHuge,
                                -kHuge, 0x1p-149F, -0x1p-130F, 0x1p-126F, 88.7F, 88.8F,
                                -87.4F, -103.9F,   -104.1F,    1e-30F,    17.0F, -1.0F};
  std::vector<float> numbers = normal_numbers(count, seed, 30);
  for (std::size_t i = seed % 3; i < numbers.size(); i += 3) {
    numbers[i] = kSpecial[(i + seed) % std::size(kSpecial)];
  }
  return numbers;
}

/// Error in units of the last place of the expected value's f32.
inline double ulps(double actual, double expected) {
  const double magnitude = std::max(std::abs(expected), 0x1p-126);
  return std::abs(actual - expected) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

class VectorKernelsTest : public testing::TestWithParam<const VectorKernels*> {
 protected:
  const VectorKernels& kernels_ = *GetParam();
};

}  // namespace moesaic
