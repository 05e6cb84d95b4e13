#pragma once

#include <cstdint>

namespace moesaic {

/// How the learning rate goes on after it has risen.
enum class RateSchedule { cosine, linear, constant };

struct LearningRate {
  double peak = 1e-4;
  RateSchedule schedule = RateSchedule::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;

  /// Of a step, counted from 0: what get_{cosine,linear,constant}_schedule_with_warmup of
  /// transformers gives.
  [[nodiscard]] double at(std::int64_t step) const;
};

}  // namespace moesaic
