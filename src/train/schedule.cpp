#include "src/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moesaic {

double LearningRate::at(std::int64_t step) const {
  const auto at_least_1 = [](std::int64_t steps) {
    return static_cast<double>(std::max<std::int64_t>(steps, 1));
  };
  if (step < warmup_steps) return peak * static_cast<double>(step) / at_least_1(warmup_steps);
  if (schedule == RateSchedule::constant) return peak;
  const double progress =
      static_cast<double>(step - warmup_steps) / at_least_1(total_steps - warmup_steps);
  if (schedule == RateSchedule::linear) return peak * std::max(0.0, 1.0 - progress);
  return peak * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace moesaic
