#pragma once

#include <cstdint>

namespace moesaic {

/// How many parts of at most `by` a value has.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) noexcept {
  return (value + by - 1) / by;
}
/// The least multiple of `step` that is not below it.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) noexcept {
  return divide_up(value, step) * step;
}

}  // namespace moesaic
