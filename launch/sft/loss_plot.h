#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

/// A loss after so many steps.
struct LossPoint {
  std::int64_t step = 0;
  double loss = 0;
};

struct LossCurves {
  std::vector<LossPoint> train;     // in ascending steps
  std::vector<LossPoint> held_out;  // the same
};

/// Exponential mean of the losses, corrected for its start (as Adam's moments are); `keep` is the
/// weight of what was before.
[[nodiscard]] std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points, double keep);

/// An SVG picture: the losses of the steps, smoothed, and of the held-out data.
[[nodiscard]] std::string loss_svg(const LossCurves& curves);

}  // namespace moesaic
