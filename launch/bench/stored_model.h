#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "launch/job/model_facts.h"
#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "src/train/sample_set.h"

namespace moesaic {

/// The weights of the whole model as they are stored, once however many ranks hold them.
struct StoredModel {
  WeightBytes::ByFormat experts{};
  WeightBytes::ByFormat others{};

  StoredModel(const Runtime& runtime, const LoadSummary& load);

  /// The format that has most of `bytes`.
  [[nodiscard]] static Format main_format(const WeightBytes::ByFormat& bytes);
  [[nodiscard]] std::int64_t expert_bytes() const;
  [[nodiscard]] std::int64_t other_bytes() const;
  /// "bf16", or "int4+bf16": experts, and the rest.
  [[nodiscard]] std::string formats_text() const;
  /// Parameters that a token is multiplied by, by their format.
  [[nodiscard]] std::map<Format, double> multiplied(const ModelConfig& config,
                                                    const ModelFacts& facts) const;
};

[[nodiscard]] ModelFacts facts_of(const OpenModel& model);

/// Of the routed experts, those that a token meets.
[[nodiscard]] double chosen_share(const ModelConfig& config);

/// Operations of one rank that feeds n tokens of one sequence and wants `heads` rows of logits.
[[nodiscard]] double sequence_flops(const ModelConfig& config, const ModelFacts& facts,
                                    std::int64_t n, std::int64_t heads);

/// Operations of a step of fine-tuning over `samples`, each trained where it says: products
/// forward, and as many again for the gradients of their inputs.
[[nodiscard]] double training_flops(const OpenModel& model, const SampleSet& samples);

/// Bytes that one rank's sequence makes its experts and itself read for n tokens, one at a time.
[[nodiscard]] double sequence_bytes(const ModelConfig& config, const StoredModel& stored,
                                    Precision precision, std::int64_t n);

}  // namespace moesaic
