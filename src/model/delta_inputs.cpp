#include "src/model/delta_inputs.h"

#include <cmath>

namespace moesaic {

void DeltaInputs::reserve(std::int64_t rows) {
  rows_ = rows;
  rates_.reserve(rows * 2 * config_.value_heads);
  channels_.reserve(rows * config_.channels());
}

void DeltaInputs::find_rates(const WeightSet& weights, const float* projected, std::int64_t row) {
  const std::int64_t heads = config_.value_heads;
  float* const rates = this->rates(row);
  for (std::int64_t head = 0; head < heads; ++head) {
    const float* const rate = projected + config_.rate_column(head);
    rates[head] = *rate;
    rates[heads + head] = rate[config_.step_distance()];
  }
  const VectorKernels& vector = *context_.compute.vector;
  vector.sigmoid(rates, heads);
  vector.delta.decays(weights[DeltaWeight::kDecayLogs].vector.data(),
                      weights[DeltaWeight::kStepBias].vector.data(), heads, rates + heads);
}

DeltaRule DeltaInputs::rule(std::int64_t value_head, const SampleRange& rows) const {
  const std::int64_t key_head = value_head / config_.group();
  const std::int64_t first = rows.first_row;
  const float* const rates = this->rates(first) + value_head;
  return {.queries = rows_of(config_.query_head(key_head), first),
          .keys = rows_of(config_.key_head(key_head), first),
          .values = rows_of(config_.value_head(value_head), first),
          .value_stride = config_.value_dim,
          .decays = rates + config_.value_heads,
          .rates = rates,
          .scalar_stride = 2 * config_.value_heads,
          .key_dim = config_.key_dim,
          .columns = config_.value_dim,
          .rows = rows.num_rows};
}

void DeltaInputs::finish(const WeightSet& weights, const float* projected, float* results) const {
  for (std::int64_t head = 0; head < config_.value_heads; ++head) {
    context_.compute.vector->delta.gated_norm(
        weights[DeltaWeight::kNorm].vector.data(), static_cast<float>(config_.rms_norm_eps),
        projected + config_.gate_column(head), config_.value_dim,
        results + head * config_.value_dim);
  }
}

float DeltaInputs::unit_scale(const DeltaHead& head) const {
  if (head.part != DeltaPart::query) return 1.0F;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head.width)));
}

void DeltaInputs::convolve(const WeightSet& weights, const DeltaHead& head, const Rows& rows) {
  const DeltaKernels& kernels = context_.compute.vector->delta;
  float* const out = rows_of(head, rows.first_row);
  const std::int64_t stride = rows.projected.cols();
  kernels.convolve({.x = rows.projected.data() + rows.first_row * stride + head.column,
                    .x_stride = stride,
                    .before = rows.before,
                    .before_stride = rows.before_stride,
                    .weights = weights[DeltaWeight::kConvolution].vector.data() + head.channel,
                    .weights_stride = config_.channels(),
                    .taps = config_.taps,
                    .channels = head.width,
                    .rows = rows.num_rows,
                    .y = out,
                    .y_stride = head.width});
  if (head.part == DeltaPart::value) return;
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    const float factor = kernels.scale_to_unit(unit_scale(head), DeltaConfig::kUnitEpsilon,
                                               head.width, out + row * head.width);
    if (rows.factors != nullptr) rows.factors[row] = factor;
  }
}

}  // namespace moesaic
