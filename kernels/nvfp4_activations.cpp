#include "kernels/nvfp4_activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/elements.h"
#include "kernels/formats/quantize_groups.h"

namespace moesaic {
namespace {

constexpr std::size_t kGroup = 16;

/// The smallest power of two that is not below `value`, a normal number.
float power_above(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t up = (bits & 0x7fffffU) != 0 ? 0x800000U : 0U;
  return std::bit_cast<float>((bits & 0x7f800000U) + up);
}

/// The nearest e2m1, ties to the even code; steps are 0.5, from 2 on 1, from 4 on 2.
float round_to_e2m1(float value) {
  constexpr float kRounder = 0x1.8p23F;  // its last bit counts for 1
  const float magnitude = std::fabs(value);
  const float step = magnitude < 2 ? 0.5F : magnitude < 4 ? 1.0F : 2.0F;
  const float rounded = (magnitude / step + kRounder - kRounder) * step;
  return std::copysign(std::min(rounded, kLargestE2m1), value);
}

[[gnu::noinline]] void round_row(std::span<float> row, float input_scale) {
  const float amax = largest_magnitude(row);
  if (!(amax <= std::numeric_limits<float>::max())) {
    std::ranges::fill(row, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (amax < 0x1p-100F) {
    std::ranges::fill(row, 0.0F);
    return;
  }
  const bool is_given = input_scale != 0;
  const float row_scale =
      is_given ? input_scale : power_above(amax / (kLargestE2m1 * kLargestE4m3));
  for (std::size_t first = 0; first < row.size(); first += kGroup) {
    const std::span<float> group = row.subspan(first, std::min(kGroup, row.size() - first));
    const std::uint8_t code = nearest_e4m3(largest_magnitude(group) / (kLargestE2m1 * row_scale));
    const float group_scale = e4m3_to_float(code);
    const float scale = group_scale * row_scale;
    const float inverse = scale == 0 ? 0 : 1 / scale;
    const float unit = is_given ? group_scale : scale;
    for (float& value : group) value = round_to_e2m1(value * inverse) * unit;
  }
}

}  // namespace

void round_to_nvfp4(std::span<float> row, float input_scale) {
  const TileEnvironment environment;  // nearest-even whatever the caller's settings are
  round_row(row, input_scale);
}

}  // namespace moesaic
