#pragma once

#include <cmath>
#include <cstdint>

namespace moesaic {

/// Losses of samples, added as multiples of a unit, so that their sum does not depend on the order.
/// In two parts, each of which is a sum too, over ranks as well: no number of samples is too many.
struct LossSum {
  static constexpr double kUnit = 0x1p-36;
  static constexpr double kLargest = 0x1p26;  // of a sample

  std::int64_t high = 0;  // multiples of 2^32 units
  std::int64_t low = 0;   // units

  /// False if `loss` is too large to be one, infinite or not a number.
  bool add(double loss) {
    if (!(std::abs(loss) < kLargest)) return false;
    const std::int64_t units = std::llround(loss / kUnit);
    high += units >> 32;
    low += units & 0xffff'ffff;
    return true;
  }
  [[nodiscard]] double value() const {
    return (static_cast<double>(high) * 0x1p32 + static_cast<double>(low)) * kUnit;
  }
};

}  // namespace moesaic
