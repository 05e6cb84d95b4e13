#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/formats/elements.h"
#include "kernels/formats/normalize_codes.h"

// What mxfp4 and mxfp8 share: an e8m0 scale for each step of 32 k of a column, packed as bytes
// [steps][16 columns]; missing ones are 1.

namespace moesaic {

/// The scale of a code other than NaN. No float: code 0 is a subnormal one.
[[nodiscard]] constexpr double e8m0_to_double(std::uint8_t code) noexcept {
  return std::bit_cast<double>((std::uint64_t{code} + 1023 - 127) << 52);
}

/// A code's value times its scale, zero below the smallest normal bf16 whatever the caller's
/// floating-point settings are.
[[nodiscard]] inline BFloat16 power_scaled(float value, std::uint8_t scale) noexcept {
  const double product = static_cast<double>(value) * e8m0_to_double(scale);
  return std::fabs(product) < 0x1p-126 ? BFloat16{} : to_bfloat16(static_cast<float>(product));
}

/// magnitude_range() of each scale.
template <float (*Value)(std::uint8_t), std::uint8_t Largest>
[[nodiscard]] consteval std::array<MagnitudeRange, 255> make_magnitude_ranges() {
  std::array<MagnitudeRange, 255> ranges{};
  for (std::size_t scale = 0; scale < ranges.size(); ++scale) {
    ranges[scale] =
        magnitude_range<Value, Largest>(e8m0_to_double(static_cast<std::uint8_t>(scale)));
  }
  return ranges;
}

/// The scale of one row and step; 1 where there is none. Throws Error{file} for NaN.
[[nodiscard]] std::uint8_t power_scale(const QuantizedRows& rows, std::int64_t row,
                                       std::int64_t step);

}  // namespace moesaic
