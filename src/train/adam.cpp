#include "src/train/adam.h"

#include <algorithm>
#include <cmath>

namespace moesaic {
namespace {

/// base^exponent by squaring: unlike std::pow the same on every machine.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

AdamUpdate update_of(const AdamOptions& options, const AdamStep& step) {
  return {.decay = static_cast<float>(1 - step.learning_rate * options.weight_decay),
          .first_share = static_cast<float>(1 - options.beta1),
          .second_kept = static_cast<float>(options.beta2),
          .second_share = static_cast<float>(1 - options.beta2),
          .second_root = static_cast<float>(std::sqrt(1 - power(options.beta2, step.number))),
          .epsilon = static_cast<float>(options.epsilon),
          .step_size =
              static_cast<float>(-step.learning_rate / (1 - power(options.beta1, step.number))),
          .scale = step.scale};
}

}  // namespace

void adam_step(const AdamOptions& options, const AdamStep& step, std::span<const std::int64_t> sums,
               const AdamState& state, const Compute& compute) {
  constexpr std::int64_t kPiece = 1 << 14;
  const AdamUpdate update = update_of(options, step);
  const GradientKernels& kernels = compute.vector->gradients;
  compute.pool->for_each_piece(std::ssize(sums), kPiece, [&](std::int64_t at, std::int64_t count) {
    kernels.adam(update,
                 {sums.data() + at, state.parameters.data() + at, state.first.data() + at,
                  state.second.data() + at},
                 count);
  });
}

}  // namespace moesaic
