#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/error.h"
#include "kernels/weight_format.h"

// What the quantisers of all formats are written with.

namespace moesaic {

/// The largest magnitude; a NaN or an infinity if there is one.
[[nodiscard]] inline float largest_magnitude(std::span<const float> values) noexcept {
  std::uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  }
  return std::bit_cast<float>(largest);
}

/// To the nearest integer, even ones at ties; |value| < 2^22.
[[nodiscard]] inline std::int32_t nearest_integer(float value) noexcept {
  constexpr float kRounder = 0x1.8p23F;  // its last bit counts for 1
  return std::bit_cast<std::int32_t>(value + kRounder) - std::bit_cast<std::int32_t>(kRounder);
}

/// Some k of one row that share a scale.
struct FloatGroup {
  std::span<const float> values;
  float amax;           // the largest magnitude
  std::int64_t row;     // in the matrix
  std::int64_t k;       // of the first value
  std::size_t index;    // of the group in QuantizedRows
  std::uint8_t* codes;  // one a value
};

/// Shapes `out` and calls quantize(FloatGroup) for all groups of `group` k. Throws Error{file} for
/// a value that is not finite.
template <typename Quantize>
void quantize_groups(const FloatRows& rows, std::int64_t group, QuantizedRows& out,
                     const Quantize& quantize) {
  out.num_rows = rows.num_rows;
  out.depth = rows.depth;
  out.num_groups = divide_up(rows.depth, group);
  out.codes.resize(static_cast<std::size_t>(rows.num_rows * rows.depth));
  for (std::int64_t r = 0; r < rows.num_rows; ++r) {
    for (std::int64_t g = 0; g < out.num_groups; ++g) {
      const std::int64_t k = g * group;
      const auto first = static_cast<std::size_t>(r * rows.depth + k);
      const auto count = static_cast<std::size_t>(std::min(group, rows.depth - k));
      const std::span<const float> values = rows.values.subspan(first, count);
      const float amax = largest_magnitude(values);
      require(amax <= std::numeric_limits<float>::max(), ErrorKind::file,
              "row {}, k {} to {}: a weight is not finite, which no quantised format can hold",
              rows.first_row + r, k, k + std::ssize(values) - 1);
      quantize(FloatGroup{values, amax, rows.first_row + r, k, out.group_index(r, g),
                          out.codes.data() + first});
    }
  }
}

/// The scale that gives `amax` the code `largest`; one below the smallest normal float, as which
/// kernels would take zero, is zero.
[[nodiscard]] inline float scale_for(float amax, float largest) noexcept {
  const float scale = amax / largest;
  return scale < std::numeric_limits<float>::min() ? 0.0F : scale;
}

/// codes[i] = encode(values[i] / scale), or `zero` if there is no scale.
template <typename Encode>
void encode_group(const FloatGroup& group, float scale, std::uint8_t zero, const Encode& encode) {
  if (scale == 0) {
    std::fill_n(group.codes, group.values.size(), zero);
    return;
  }
  for (std::size_t i = 0; i < group.values.size(); ++i) {
    group.codes[i] = static_cast<std::uint8_t>(encode(group.values[i] / scale));
  }
}

}  // namespace moesaic
