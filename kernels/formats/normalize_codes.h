#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/formats/panel_steps.h"

namespace moesaic {

/// The magnitudes of codes whose values, times a scale, are normal numbers of bf16.
struct MagnitudeRange {
  std::uint8_t first = 0xff;
  std::uint8_t last = 0;
};

/// `Value` gives that of a code; those from 1 to `Largest` are the magnitudes. Values are rounded
/// to float before they are rounded to bf16.
template <float (*Value)(std::uint8_t), std::uint8_t Largest>
[[nodiscard]] constexpr MagnitudeRange magnitude_range(double scale) noexcept {
  constexpr double kSmallest = 0x1p-126;
  constexpr double kBeyond = 0x1.ffp127 - 0x1p103;  // both roundings go up from here
  MagnitudeRange range;
  for (std::uint8_t magnitude = Largest; magnitude > 0; --magnitude) {
    const double value = static_cast<double>(Value(magnitude)) * scale;
    if (value >= kSmallest) range.first = magnitude;
    if (value < kBeyond) range.last = std::max(range.last, magnitude);
  }
  return range;
}

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
