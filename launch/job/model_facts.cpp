#include "launch/job/model_facts.h"

#include <fmt/core.h>

#include <algorithm>

namespace moesaic {

ModelFacts count_parameters(const ModelConfig& config, const ModelNames& names) {
  ModelFacts facts;
  const bool tied = names.lm_head.tensor == names.embedding.tensor;
  for_each_slice(names, [&](const TensorSlice& slice, bool expert) {
    const std::int64_t count = slice.rows * slice.cols;
    facts.total_parameters += count;
    if (expert) facts.expert_parameters += count;
  });
  const std::int64_t embedding = names.embedding.rows * names.embedding.cols;
  const std::int64_t dense = facts.total_parameters - facts.expert_parameters;
  const std::int64_t chosen =
      config.num_experts > 0
          ? facts.expert_parameters / config.num_experts * config.experts_per_token
          : 0;
  facts.active_parameters = dense + chosen;
  facts.multiplied_parameters = facts.active_parameters - (tied ? 0 : embedding);
  return facts;
}

double attention_flops(const ModelConfig& config, std::int64_t tokens) {
  double keys = 0;  // seen, over all layers and tokens
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::int64_t window = config.sliding_window[static_cast<std::size_t>(layer)];
    const std::int64_t growing = window > 0 ? std::min(window, tokens) : tokens;
    const auto n = static_cast<double>(growing);
    keys += n * (n + 1) / 2 + static_cast<double>(tokens - growing) * n;
  }
  return 4.0 * static_cast<double>(config.q_width()) * keys;
}

std::string format_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e12) return fmt::format("{:.2f} T", value / 1e12);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  return fmt::format("{:.2f} K", value / 1e3);
}

}  // namespace moesaic
