#pragma once

#include <cstdint>
#include <span>

#include "kernels/grouped_gemm.h"

namespace moesaic {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// What AdamW keeps of as many parameters, all [parameters].
struct AdamState {
  std::span<float> parameters;
  std::span<float> first;   // moment
  std::span<float> second;  // moment
};

/// One step of an optimizer.
struct AdamStep {
  std::int64_t number = 0;  // from 1
  double learning_rate = 0;
  /// gradient = sum * scale, rounded to f32: what sums in fixed point count, and clipping.
  double scale = 1;
};

/// One step of AdamW in f32, in the order of torch.optim.AdamW (Loshchilov and Hutter, decoupled
/// weight decay): the same bits on every machine. `sums` [parameters]: AdapterGradients.
void adam_step(const AdamOptions& options, const AdamStep& step, std::span<const std::int64_t> sums,
               const AdamState& state, const Compute& compute);

}  // namespace moesaic
