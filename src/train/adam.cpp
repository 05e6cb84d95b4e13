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

/// The numbers of a step as torch rounds them when they meet tensors of f32.
struct Factors {
  Factors(const AdamOptions& options, const AdamStep& step)
      : decay(static_cast<float>(1 - step.learning_rate * options.weight_decay)),
        first_share(static_cast<float>(1 - options.beta1)),
        second_kept(static_cast<float>(options.beta2)),
        second_share(static_cast<float>(1 - options.beta2)),
        second_root(static_cast<float>(std::sqrt(1 - power(options.beta2, step.number)))),
        epsilon(static_cast<float>(options.epsilon)),
        step_size(
            static_cast<float>(-step.learning_rate / (1 - power(options.beta1, step.number)))),
        scale(step.scale) {}

  float decay;
  float first_share;
  float second_kept;
  float second_share;
  float second_root;
  float epsilon;
  float step_size;
  double scale;
};

void update(const Factors& by, std::int64_t sum, float& parameter, float& first, float& second) {
  const auto gradient = static_cast<float>(static_cast<double>(sum) * by.scale);
  first += by.first_share * (gradient - first);
  second = second * by.second_kept + by.second_share * gradient * gradient;
  const float denominator = std::sqrt(second) / by.second_root + by.epsilon;
  parameter = parameter * by.decay + by.step_size * (first / denominator);
}

}  // namespace

void adam_step(const AdamOptions& options, const AdamStep& step, std::span<const std::int64_t> sums,
               const AdamState& state, ThreadPool& pool) {
  constexpr std::int64_t kPiece = 1 << 14;
  const Factors factors(options, step);
  const std::int64_t count = std::ssize(sums);
  pool.for_each((count + kPiece - 1) / kPiece, 1, [&](std::int64_t piece) {
    const std::int64_t end = std::min(count, (piece + 1) * kPiece);
    for (std::int64_t at = piece * kPiece; at < end; ++at) {
      const auto i = static_cast<std::size_t>(at);
      update(factors, sums[i], state.parameters[i], state.first[i], state.second[i]);
    }
  });
}

}  // namespace moesaic
