#include "tests/model/naive_delta.h"

#include <cmath>

#include "tests/support/slopes.h"

namespace moesaic {
namespace {

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

Doubles NaiveDelta::project(const Doubles& x, DeltaWeight::Place place) const {
  const bool is_out = place == DeltaWeight::kOut;
  const Doubles& weights = is_out ? out : place == DeltaWeight::kIn ? in : rates;
  const std::int64_t depth = is_out ? config.value_width() : config.hidden;
  const std::int64_t width = std::ssize(weights) / depth;
  Doubles result;
  for (std::int64_t row = 0; row < std::ssize(x) / depth; ++row) {
    const double* const from = x.data() + row * depth;
    for (std::int64_t n = 0; n < width; ++n) {
      result.push_back(product(from, weights.data() + n * depth, depth));
    }
    double* const to = result.data() + row * width;
    for (const NaiveAdapter& adapter : adapters) {
      if (adapter.matrix != place) continue;
      for (std::int64_t r = 0; r < adapter.rank; ++r) {
        const double inner = adapter.scale * product(from, adapter.a.data() + r * depth, depth);
        for (std::int64_t n = 0; n < adapter.rows; ++n) {
          to[adapter.first_row + n] +=
              inner * adapter.b[static_cast<std::size_t>(n * adapter.rank + r)];
        }
      }
    }
  }
  return result;
}

Doubles NaiveDelta::convolve(const Doubles& projected, const DeltaHead& head) const {
  const std::int64_t stride = config.projected_width();
  Doubles rows;
  for (std::int64_t t = 0; t < std::ssize(projected) / stride; ++t) {
    for (std::int64_t c = 0; c < head.width; ++c) {
      double sum = 0;
      for (std::int64_t j = 0; j < config.taps; ++j) {
        const std::int64_t from = t - config.taps + 1 + j;
        if (from < 0) continue;
        sum += projected[static_cast<std::size_t>(from * stride + head.column + c)] *
               convolution[static_cast<std::size_t>(j * config.channels() + head.channel + c)];
      }
      rows.push_back(sum * sigmoid_of(sum));
    }
    if (head.part == DeltaPart::value) continue;
    double* const row = rows.data() + t * head.width;
    const double scale = head.part == DeltaPart::query ? static_cast<double>(head.width) : 1.0;
    const double size = std::sqrt(scale * (product(row, row, head.width) + 1e-6));
    for (std::int64_t c = 0; c < head.width; ++c) row[c] /= size;
  }
  return rows;
}

/// S = g S; e = b (v - S^T k); S += k e^T; y = S^T q.
Doubles NaiveDelta::recur(const Doubles& projected, const Doubles& scalars,
                          std::int64_t value_head) const {
  const std::int64_t key_head = value_head / config.group();
  const Doubles queries = convolve(projected, config.query_head(key_head));
  const Doubles keys = convolve(projected, config.key_head(key_head));
  const Doubles values = convolve(projected, config.value_head(value_head));
  const std::int64_t key_dim = config.key_dim;
  const auto head = static_cast<std::size_t>(value_head);
  Doubles state(static_cast<std::size_t>(key_dim * config.value_dim));
  Doubles results;
  for (std::int64_t t = 0; t < std::ssize(values) / config.value_dim; ++t) {
    const double* const row = scalars.data() + t * 2 * config.value_heads;
    const double* const rate_at = row + config.rate_column(value_head);
    const double rate = sigmoid_of(*rate_at);
    const double step = rate_at[config.step_distance()] + step_bias[head];
    const double decay = std::exp(-std::exp(decay_logs[head]) * std::log1p(std::exp(step)));
    for (std::int64_t c = 0; c < config.value_dim; ++c) {
      double* const column = state.data() + c * key_dim;
      for (std::int64_t i = 0; i < key_dim; ++i) column[i] *= decay;
      const double* const key = keys.data() + t * key_dim;
      const double error = rate * (values[static_cast<std::size_t>(t * config.value_dim + c)] -
                                   product(column, key, key_dim));
      for (std::int64_t i = 0; i < key_dim; ++i) column[i] += key[i] * error;
      results.push_back(product(column, queries.data() + t * key_dim, key_dim));
    }
    const double* const y = results.data() + t * config.value_dim;
    const double* const gates =
        projected.data() + t * config.projected_width() + config.gate_column(value_head);
    const double mean = product(y, y, config.value_dim) / static_cast<double>(config.value_dim);
    for (std::int64_t c = 0; c < config.value_dim; ++c) {
      double& result = results[static_cast<std::size_t>(t * config.value_dim + c)];
      result *= norm[static_cast<std::size_t>(c)] * gates[c] * sigmoid_of(gates[c]);
    }
    const double inverse = 1 / std::sqrt(mean + config.rms_norm_eps);
    for (std::int64_t c = 0; c < config.value_dim; ++c) {
      results[static_cast<std::size_t>(t * config.value_dim + c)] *= inverse;
    }
  }
  return results;
}

Doubles NaiveDelta::forward(const Doubles& x) const {
  const Doubles projected = project(x, DeltaWeight::kIn);
  const Doubles scalars = project(x, DeltaWeight::kRates);
  const std::int64_t dim = config.value_dim;
  Doubles mixed(static_cast<std::size_t>(std::ssize(x) / config.hidden * config.value_width()));
  for (std::int64_t head = 0; head < config.value_heads; ++head) {
    const Doubles results = recur(projected, scalars, head);
    for (std::int64_t i = 0; i < std::ssize(results); ++i) {
      mixed[static_cast<std::size_t>(i / dim * config.value_width() + head * dim + i % dim)] =
          results[static_cast<std::size_t>(i)];
    }
  }
  return project(mixed, DeltaWeight::kOut);
}

}  // namespace moesaic
