#include "tests/model/naive_gqa.h"

#include <algorithm>
#include <cmath>

#include "tests/support/slopes.h"

namespace moesaic {
namespace {

void normalise(double* x, const Doubles& weight, double epsilon) {
  double squares = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i) x[i] *= inverse * weight[i];
}

}  // namespace

Doubles NaiveGqa::project(const Doubles& x, bool is_output) const {
  const Doubles& weights = is_output ? o : qkv;
  const Doubles& bias = is_output ? o_bias : qkv_bias;
  const std::int64_t depth = is_output ? config.q_width() : config.hidden;
  const std::int64_t width = is_output ? config.hidden : config.projected_width();
  Doubles out;
  for (std::int64_t row = 0; row < std::ssize(x) / depth; ++row) {
    const double* const from = x.data() + row * depth;
    for (std::int64_t n = 0; n < width; ++n) {
      out.push_back(product(from, weights.data() + n * depth, depth));
      if (!bias.empty()) out.back() += bias[static_cast<std::size_t>(n)];
    }
    double* const to = out.data() + row * width;
    for (const NaiveAdapter& adapter : adapters) {
      if (adapter.matrix != (is_output ? kO : kQkv)) continue;
      for (std::int64_t n = 0; n < adapter.rows; ++n) {
        for (std::int64_t r = 0; r < adapter.rank; ++r) {
          to[adapter.first_row + n] += adapter.scale *
                                       adapter.b[static_cast<std::size_t>(n * adapter.rank + r)] *
                                       product(from, adapter.a.data() + r * depth, depth);
        }
      }
    }
  }
  return out;
}

Doubles NaiveGqa::take_gates(Doubles& projected) const {
  Doubles gates;
  Doubles others;
  const std::int64_t size = config.head_dim;
  for (std::int64_t i = 0; i < std::ssize(projected); ++i) {
    const std::int64_t column = i % config.projected_width();
    const bool is_gate = column < 2 * config.q_width() && column / size % 2 == 1;
    (is_gate ? gates : others).push_back(projected[static_cast<std::size_t>(i)]);
  }
  projected = others;
  return gates;
}

void NaiveGqa::prepare(double* row, std::int64_t position) const {
  double* const keys = row + config.q_width();
  if (config.qk_norm == QkNorm::whole) {
    normalise(row, q_norm, config.rms_norm_eps);
    normalise(keys, k_norm, config.rms_norm_eps);
  }
  if (config.clip_qkv) {
    for (std::int64_t i = 0; i < config.q_width() + 2 * config.kv_width(); ++i) {
      row[i] = std::clamp(row[i], -*config.clip_qkv, *config.clip_qkv);
    }
  }
  const std::int64_t half = config.rope.rotary_dim / 2;
  for (std::int64_t h = 0; h < config.num_heads + config.num_kv_heads; ++h) {
    double* const head = row + h * config.head_dim;
    if (config.qk_norm == QkNorm::per_head) {
      normalise(head, h < config.num_heads ? q_norm : k_norm, config.rms_norm_eps);
    }
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(config.rope.theta,
                   -2.0 * static_cast<double>(i) / static_cast<double>(config.rope.rotary_dim));
      const double cosine = std::cos(static_cast<double>(position) * frequency);
      const double sine = std::sin(static_cast<double>(position) * frequency);
      const bool neighbours = config.rope.form == RotaryForm::pairs;
      double& first = head[neighbours ? 2 * i : i];
      double& second = head[neighbours ? 2 * i + 1 : i + half];
      const double turned = first * cosine - second * sine;
      second = second * cosine + first * sine;
      first = turned;
    }
  }
}

Doubles NaiveGqa::attend(const Doubles& projected, std::int64_t row, std::int64_t head) const {
  const std::int64_t width = config.q_width() + 2 * config.kv_width();
  const std::int64_t kv_head = head / (config.num_heads / config.num_kv_heads);
  const double* const query = projected.data() + row * width + head * config.head_dim;
  const double* const keys = projected.data() + config.q_width() + kv_head * config.head_dim;
  const double* const values = keys + config.kv_width();
  Doubles sums(static_cast<std::size_t>(config.head_dim));
  double total = sinks.empty() ? 0 : std::exp(sinks[static_cast<std::size_t>(head)]);
  const std::int64_t first =
      config.window > 0 ? std::max<std::int64_t>(0, row + 1 - config.window) : 0;
  for (std::int64_t key = first; key <= row; ++key) {
    const double weight =
        std::exp(config.scale * product(query, keys + key * width, config.head_dim));
    total += weight;
    for (std::size_t d = 0; d < sums.size(); ++d) {
      sums[d] += weight * values[key * width + static_cast<std::int64_t>(d)];
    }
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

Doubles NaiveGqa::forward(const Doubles& x) const {
  Doubles projected = project(x, false);
  const Doubles gates = config.gated ? take_gates(projected) : Doubles();
  const std::int64_t width = config.q_width() + 2 * config.kv_width();
  const std::int64_t rows = std::ssize(projected) / width;
  for (std::int64_t row = 0; row < rows; ++row) prepare(projected.data() + row * width, row);
  Doubles attended;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < config.num_heads; ++head) {
      const Doubles result = attend(projected, row, head);
      attended.insert(attended.end(), result.begin(), result.end());
    }
  }
  for (std::size_t i = 0; i < gates.size(); ++i) attended[i] /= 1 + std::exp(-gates[i]);
  return project(attended, true);
}

}  // namespace moesaic
