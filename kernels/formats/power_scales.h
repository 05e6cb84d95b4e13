#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/formats/elements.h"
#include "kernels/formats/normalize_codes.h"

// What mxfp4 and mxfp8 share: an e8m0 scale for each step of 32 k of a column, packed as bytes
// [steps][16 columns]; missing ones are 1.

namespace moesaic {

/// magnitude_range() of each scale.
template <float (*Value)(std::uint8_t), std::uint8_t Largest>
[[nodiscard]] consteval std::array<MagnitudeRange, 255> make_magnitude_ranges() {
  std::array<MagnitudeRange, 255> ranges{};
  for (std::size_t scale = 0; scale < ranges.size(); ++scale) {
    const auto power = std::bit_cast<double>((std::uint64_t{scale} + 1023 - 127) << 52);
    ranges[scale] = magnitude_range<Value, Largest>(power);
  }
  return ranges;
}

/// The scale of one row and step; 1 where there is none. Throws Error{file} for NaN.
[[nodiscard]] std::uint8_t power_scale(const QuantizedRows& rows, std::int64_t row,
                                       std::int64_t step);

}  // namespace moesaic
