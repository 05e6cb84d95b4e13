#include "launch/job/model_facts.h"

#include <fmt/core.h>

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
      facts.expert_parameters / config.num_experts * config.experts_per_token;
  facts.active_parameters = dense + chosen;
  facts.multiplied_parameters = facts.active_parameters - (tied ? 0 : embedding);
  return facts;
}

MixerWork mixer_work(const ModelConfig& config, Precision precision, std::int64_t tokens) {
  MixerWork sum;
  for (const LayerConfig& layer : config.layers) {
    const MixerWork work = layer.mixer->work(precision, tokens);
    sum.flops += work.flops;
    sum.cache_bytes += work.cache_bytes;
  }
  return sum;
}

std::string format_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e12) return fmt::format("{:.2f} T", value / 1e12);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  return fmt::format("{:.2f} K", value / 1e3);
}

}  // namespace moesaic
