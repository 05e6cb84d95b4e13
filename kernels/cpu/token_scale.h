#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moesaic {

/// How a row of activations becomes int8 codes, one scale a row: code = nearest-even(x * inverse),
/// x = code * scale. The largest magnitude gets 127.
struct TokenScale {
  float inverse;
  float scale;
};

/// From the largest of the row's bits without their signs, which order as the magnitudes do, NaN
/// last. A row with an infinity or a NaN gets scale NaN and codes 0, so that its results are NaN;
/// one of magnitudes below 2^-100 counts as zeros.
[[nodiscard]] inline TokenScale token_scale(std::uint32_t largest_bits) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  if (largest_bits >= kInfinity) return {0, std::numeric_limits<float>::quiet_NaN()};
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest < 0x1p-100F) return {0, 0};
  return {127.0F / largest, largest / 127.0F};
}

}  // namespace moesaic
