#include "src/train/schedule.h"

#include <algorithm>
#include <numbers>

namespace moesaic {
namespace {

/// (-1)^k x^(n + 2k) / (n + 2k)! for k = 0, 1, ..., added from the smallest: for |x| <= pi / 4 and
/// n = 0 (cosine) or 1 (sine) correct to a rounding error or two.
double taylor_sum(double x, int n) {
  constexpr int kTerms = 9;
  double terms[kTerms] = {n == 0 ? 1.0 : x};
  for (int k = 1; k < kTerms; ++k)
    terms[k] = -terms[k - 1] * x * x / ((n + 2 * k - 1) * (n + 2 * k));
  double sum = 0;
  for (int k = kTerms; k-- > 0;) sum += terms[k];
  return sum;
}

/// cos(pi x) for 0 <= x <= 1. That of libm may differ in its last bit from CPU to CPU.
double cosine_of_half_turns(double x) {
  if (x > 0.5) return -cosine_of_half_turns(1 - x);
  if (x > 0.25) return taylor_sum(std::numbers::pi * (0.5 - x), 1);
  return taylor_sum(std::numbers::pi * x, 0);
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  const auto at_least_1 = [](std::int64_t steps) {
    return static_cast<double>(std::max<std::int64_t>(steps, 1));
  };
  if (step < warmup_steps) return peak * static_cast<double>(step) / at_least_1(warmup_steps);
  if (schedule == RateSchedule::constant) return peak;
  const double progress =
      static_cast<double>(step - warmup_steps) / at_least_1(total_steps - warmup_steps);
  if (schedule == RateSchedule::linear) return peak * std::max(0.0, 1.0 - progress);
  return peak * std::max(0.0, 0.5 * (1.0 + cosine_of_half_turns(std::min(progress, 1.0))));
}

}  // namespace moesaic
