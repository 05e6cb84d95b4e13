#include "launch/bench/stored_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "src/model/precision.h"

namespace moesaic {

StoredModel::StoredModel(const Runtime& runtime, const LoadSummary& load)
    : experts(load.experts), others(load.others) {
  for (std::int64_t& bytes : experts) bytes /= runtime.options().expert_replicas;
}

Format StoredModel::main_format(const WeightBytes::ByFormat& bytes) {
  return static_cast<Format>(std::ranges::max_element(bytes) - bytes.begin());
}

std::int64_t StoredModel::expert_bytes() const {
  return std::reduce(experts.begin(), experts.end());
}

std::int64_t StoredModel::other_bytes() const {
  return std::reduce(others.begin(), others.end());
}

std::string StoredModel::formats_text() const {
  const std::string_view expert = format_name(main_format(experts));
  const std::string_view other = format_name(main_format(others));
  return expert == other ? std::string(expert) : fmt::format("{}+{}", expert, other);
}

std::map<Format, double> StoredModel::multiplied(const ModelConfig& config,
                                                 const ModelFacts& facts) const {
  const double chosen = chosen_share(config) * static_cast<double>(facts.expert_parameters);
  std::map<Format, double> parameters;
  parameters[main_format(experts)] += chosen;
  parameters[main_format(others)] += static_cast<double>(facts.multiplied_parameters) - chosen;
  return parameters;
}

ModelFacts facts_of(const OpenModel& model) {
  return count_parameters(model.config, model.files.names(model.config));
}

double chosen_share(const ModelConfig& config) {
  return static_cast<double>(config.experts_per_token) / static_cast<double>(config.num_experts);
}

double sequence_flops(const ModelConfig& config, const ModelFacts& facts, std::int64_t n,
                      std::int64_t heads) {
  const double head = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size);
  return static_cast<double>(n) * (2.0 * static_cast<double>(facts.multiplied_parameters) - head) +
         static_cast<double>(heads) * head + mixer_work(config, Precision::bf16, n).flops;
}

double training_flops(const OpenModel& model, const SampleSet& samples) {
  const ModelFacts facts = facts_of(model);
  double forward = 0;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const std::int64_t trained = samples[i].trained_tokens();
    forward += sequence_flops(model.config, facts, samples.length(i), trained);
  }
  return 2 * forward;
}

double sequence_bytes(const ModelConfig& config, const StoredModel& stored, Precision precision,
                      std::int64_t n) {
  const auto tokens = static_cast<double>(n);
  const double chosen = chosen_share(config) * static_cast<double>(stored.expert_bytes());
  return tokens * (chosen + static_cast<double>(stored.other_bytes())) +
         mixer_work(config, precision, n).cache_bytes;
}

}  // namespace moesaic
