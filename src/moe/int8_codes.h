#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/rounding.h"

namespace moesaic {

/// Of a row of n codes with f32 scales behind them: where these begin.
[[nodiscard]] constexpr std::int64_t scales_behind_codes(std::int64_t n) noexcept {
  return round_up(n, std::int64_t{sizeof(float)});
}

/// Bits of the largest magnitude of n numbers; NaN counts as larger than infinity.
[[nodiscard]] inline std::uint32_t largest_bits(const float* numbers, std::int64_t n) noexcept {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(numbers[i]) & 0x7fffffffU);
  }
  return largest;
}

/// Nearest even, of magnitudes up to 127: the sum has no room for a fraction.
[[nodiscard]] inline std::int8_t nearest_code(float x) noexcept {
  constexpr float kShift = 0x1.8p23F;
  return static_cast<std::int8_t>(std::bit_cast<std::int32_t>(x + kShift) -
                                  std::bit_cast<std::int32_t>(kShift));
}

}  // namespace moesaic
