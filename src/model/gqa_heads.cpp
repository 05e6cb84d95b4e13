#include "src/model/gqa_heads.h"

#include <algorithm>
#include <cmath>

namespace moesaic {

RmsNorm GqaHeads::norm(const WeightSet& weights, GqaWeight which, const float* x,
                       std::int64_t width) const {
  return {.x = x,
          .weight = weights[which].vector.data(),
          .epsilon = static_cast<float>(config_.rms_norm_eps),
          .n = width};
}

void GqaHeads::norm_whole(const WeightSet& weights, float* row) const {
  if (config_.qk_norm != QkNorm::whole) return;
  const auto apply = [&](GqaWeight which, float* x, std::int64_t width) {
    const RmsNorm norm = this->norm(weights, which, x, width);
    vector_.rms_norm(x, norm.weight, norm.epsilon, width, x);
  };
  apply(kQNorm, row, config_.q_width());
  apply(kKNorm, row + config_.q_width(), config_.kv_width());
}

void GqaHeads::clip(float* row) const {
  if (!config_.clip_qkv) return;
  const auto limit = static_cast<float>(*config_.clip_qkv);
  for (std::int64_t i = 0; i < config_.row_width(); ++i) row[i] = std::clamp(row[i], -limit, limit);
}

void GqaHeads::part_gates(float* row, float* scratch) const {
  const std::int64_t size = config_.head_dim;
  std::copy_n(row, 2 * config_.gate_width(), scratch);
  for (std::int64_t h = 0; h < config_.num_heads; ++h) {  // a query and its gate each
    std::copy_n(scratch + 2 * h * size, size, row + config_.gate_width() + h * size);
    std::copy_n(scratch + (2 * h + 1) * size, size, row + h * size);
  }
}

void GqaHeads::join_gates(float* row, float* scratch) const {
  const std::int64_t size = config_.head_dim;
  std::copy_n(row, 2 * config_.gate_width(), scratch);
  for (std::int64_t h = 0; h < config_.num_heads; ++h) {
    std::copy_n(scratch + config_.gate_width() + h * size, size, row + 2 * h * size);
    std::copy_n(scratch + h * size, size, row + (2 * h + 1) * size);
  }
}

void GqaHeads::apply_gates(float* gates, const float* attended, float* results) const {
  vector_.sigmoid(gates, config_.gate_width());
  for (std::int64_t i = 0; i < config_.gate_width(); ++i) results[i] = attended[i] * gates[i];
}

void GqaHeads::pass_back_gates(float* gates, const float* attended, float* gradient) const {
  for (std::int64_t i = 0; i < config_.gate_width(); ++i) {
    const float share = gradient[i] * gates[i];
    gates[i] = share * attended[i] * (1 - gates[i]);
    gradient[i] = share;
  }
}

void GqaHeads::prepare(const WeightSet& weights, const RotaryAngles& angles, float* row) const {
  norm_whole(weights, row);
  clip(row);
  for (std::int64_t h = 0; h < config_.num_heads + config_.num_kv_heads; ++h) {
    float* const head = row + h * config_.head_dim;
    if (config_.qk_norm == QkNorm::per_head) {
      const GqaWeight which = h < config_.num_heads ? kQNorm : kKNorm;
      const RmsNorm norm = this->norm(weights, which, head, config_.head_dim);
      vector_.rms_norm(head, norm.weight, norm.epsilon, norm.n, head);
    }
    vector_.rotate(angles, head);
  }
}

void GqaHeads::pass_back(const WeightSet& weights, const RotaryAngles& angles,
                         const Backward& row) const {
  const bool per_head = config_.qk_norm == QkNorm::per_head;
  const bool whole = config_.qk_norm == QkNorm::whole;
  float* const head_inputs = row.scratch;  // of norms of one head
  if (per_head) {
    std::copy_n(row.projected, config_.row_width(), head_inputs);
    clip(head_inputs);
  }
  for (std::int64_t h = 0; h < config_.num_heads + config_.num_kv_heads; ++h) {
    float* const head = row.gradient + h * config_.head_dim;
    vector_.rotate_back(angles, head);
    if (!per_head) continue;
    const GqaWeight which = h < config_.num_heads ? kQNorm : kKNorm;
    vector_.rms_norm_gradient(
        norm(weights, which, head_inputs + h * config_.head_dim, config_.head_dim), head, head);
  }
  if (config_.clip_qkv) pass_back_clip(weights, row);
  if (!whole) return;
  const float* const projected_keys = row.projected + config_.q_width();
  float* const keys = row.gradient + config_.q_width();
  vector_.rms_norm_gradient(norm(weights, kQNorm, row.projected, config_.q_width()), row.gradient,
                            row.gradient);
  vector_.rms_norm_gradient(norm(weights, kKNorm, projected_keys, config_.kv_width()), keys, keys);
}

/// As torch has it: what is clamped to a bound, but does not lie on it, gets no gradient.
void GqaHeads::pass_back_clip(const WeightSet& weights, const Backward& row) const {
  std::copy_n(row.projected, config_.row_width(), row.scratch);
  norm_whole(weights, row.scratch);
  const auto limit = static_cast<float>(*config_.clip_qkv);
  for (std::int64_t i = 0; i < config_.row_width(); ++i) {
    if (std::abs(row.scratch[i]) > limit) row.gradient[i] = 0;
  }
}

}  // namespace moesaic
