#pragma once

#include <cmath>
#include <numbers>

namespace moesaic {

/// ln(x) for x >= 0 from exactly rounded operations alone, so the same bits on every CPU (libm's
/// differ). With x = m 2^e and m in [sqrt(1/2), sqrt(2)): ln m = 2 atanh(z), z = (m - 1) / (m + 1),
/// |z| < 0.172; the series to z^21 errs by less than its roundings do (4.5e-16 relative in all).
[[nodiscard]] inline double natural_log(double x) noexcept {
  if (x == 0 || !std::isfinite(x)) return x == 0 ? -HUGE_VAL : x;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // [0.5, 1)
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2;
    --exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1);
  double series = 0;
  for (int power = 21; power >= 1; power -= 2) series = series * (z * z) + 1.0 / power;
  return exponent * std::numbers::ln2 + 2 * z * series;
}

}  // namespace moesaic
