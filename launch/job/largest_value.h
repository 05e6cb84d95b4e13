#pragma once

#include <cstdint>

namespace moesaic {

/// The largest value up to `most` that `fits`, if all smaller ones do; 0: not even 1.
template <typename Fits>
[[nodiscard]] std::int64_t largest_value(std::int64_t most, const Fits& fits) {
  std::int64_t largest = 0;
  while (largest < most) {
    const std::int64_t middle = largest + (most - largest + 1) / 2;
    const bool is_enough = fits(middle);
    (is_enough ? largest : most) = is_enough ? middle : middle - 1;
  }
  return largest;
}

}  // namespace moesaic
