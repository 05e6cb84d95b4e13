#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace moesaic {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

inline Doubles as_doubles(const Floats& values) {
  return {values.begin(), values.end()};
}
inline double product(const double* a, const double* b, std::int64_t n) {
  return std::inner_product(a, a + n, b, 0.0);
}
/// The slopes of `loss` by every `stride`-th element of `values`, which it reads: central
/// differences.
inline Doubles slopes(Doubles& values, const std::function<double()>& loss,
                      std::size_t stride = 1) {
  constexpr double kDistance = 1e-5;
  Doubles out;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    double& value = values[i];
    const double x0 = value;
    value = x0 + kDistance;
    const double above = loss();
    value = x0 - kDistance;
    out.push_back((above - loss()) / (2 * kDistance));
    value = x0;
  }
  return out;
}
/// |a - b| / |b|
inline double distance(const auto& a, const Doubles& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace moesaic
