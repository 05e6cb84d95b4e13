#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/formats/elements.h"
#include "kernels/formats/panel_steps.h"

// What mxfp4 and mxfp8 share: an e8m0 scale for each step of 32 k of a column, packed as bytes
// [steps][16 columns]; missing ones are 1.

namespace moesaic {

/// The magnitudes of codes whose values, times a scale, are normal numbers of bf16.
struct MagnitudeRange {
  std::uint8_t first = 0xff;
  std::uint8_t last = 0;
};

/// For each e8m0 scale. `Value` gives that of a code; those up to `Largest` are the magnitudes.
template <float (*Value)(std::uint8_t), std::uint8_t Largest>
[[nodiscard]] consteval std::array<MagnitudeRange, 255> make_magnitude_ranges() {
  std::array<MagnitudeRange, 255> ranges{};
  for (std::uint64_t scale = 0; scale < ranges.size(); ++scale) {
    const auto factor = std::bit_cast<double>((scale + 896) << 52);  // 2^(scale - 127)
    MagnitudeRange& range = ranges[scale];
    for (std::uint8_t magnitude = 1; magnitude <= Largest; ++magnitude) {
      const double value = static_cast<double>(Value(magnitude)) * factor;
      if (value >= 0x1p-126) range.first = std::min(range.first, magnitude);
      if (value < 0x1p128) range.last = magnitude;
    }
  }
  return ranges;
}

/// The scale of one row and step; 1 where there is none. Throws Error{file} for NaN.
[[nodiscard]] std::uint8_t power_scale(const QuantizedRows& rows, std::int64_t row,
                                       std::int64_t step);

[[noreturn]] void fail_beyond_bfloat16(std::int64_t row, std::int64_t step);

/// Brings the codes of one row and step into the form that kernels decode by adding to the exponent
/// of bf16: zeros lose their sign, and codes whose values are below the smallest normal number
/// become zeros, as which products take them. Throws Error{file} for a value beyond bf16.
template <std::uint8_t SignBit>
void normalize_codes(std::span<std::uint8_t, kStepDepth> codes, const MagnitudeRange& range,
                     std::int64_t row, std::int64_t step) {
  std::uint8_t largest = 0;
  for (std::uint8_t& code : codes) {
    const auto magnitude = static_cast<std::uint8_t>(code & (SignBit - 1));
    largest = std::max(largest, magnitude);
    code = magnitude < range.first ? std::uint8_t{0} : code;
  }
  if (largest > range.last) fail_beyond_bfloat16(row, step);
}

}  // namespace moesaic
