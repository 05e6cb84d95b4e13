#pragma once

#include <cstdint>
#include <vector>

#include "launch/job/session.h"
#include "src/parallel/step_work.h"

namespace moesaic {

/// The adapters that `moesaic sft` would train with these options.
[[nodiscard]] std::vector<AdapterSpec> trained_adapters(const Options& options,
                                                        const OpenModel& model);

/// Numbers of adapters' factors.
struct AdapterNumbers {
  double common = 0;   // of all but the experts'
  double rows = 0;     // of these that a row meets, each as often as it does
  double experts = 0;  // of all routed experts
  double choices = 0;  // that a row's choices meet, all layers
};
[[nodiscard]] AdapterNumbers adapter_numbers(const std::vector<AdapterSpec>& adapters,
                                             const ModelConfig& config);

/// Samples of a rank in a step of fine-tuning, as they are cut into micro-batches.
struct RankSamples {
  std::int64_t samples = 0;  // of the rank that has most
  double passes = 1;         // micro-batches
  double pass_rows = 1;      // tokens of one
  std::int64_t all = 0;      // samples of the ranks that share the experts
};
/// `samples`: of all ranks, which have them in turn, of `tokens` tokens each.
[[nodiscard]] RankSamples rank_samples(std::int64_t samples, std::int64_t tokens,
                                       const CostRanks& ranks, std::int64_t batch_size);

/// A pass forward over those of a rank: whole samples, all of whose tokens are trained.
[[nodiscard]] CostStep sample_pass(const Options& options, const ModelConfig& config,
                                   const RankSamples& samples, std::int64_t tokens);

/// What a step does beside its passes forward, on each of these ranks.
[[nodiscard]] CostTraining training_of(const Options& options, const AdapterNumbers& adapters,
                                       const CostRanks& ranks, const RankSamples& samples);

}  // namespace moesaic
