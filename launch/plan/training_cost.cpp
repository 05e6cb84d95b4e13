#include "launch/plan/training_cost.h"

#include <algorithm>

#include "base/rounding.h"
#include "launch/plan/cost_model.h"
#include "src/lora/adapter_targets.h"
#include "src/model/model_adapters.h"

namespace moesaic {

std::vector<AdapterSpec> trained_adapters(const Options& options, const OpenModel& model) {
  if (model.adapter) return model.adapter->specs();
  std::vector<AdapterSpec> specs;
  for (AdapterSite& site :
       choose_sites(adapter_sites(model.files.names(model.config)), options.lora_targets)) {
    specs.push_back({.site = std::move(site), .rank = options.lora_rank});
  }
  return specs;
}

AdapterNumbers adapter_numbers(const std::vector<AdapterSpec>& adapters,
                               const ModelConfig& config) {
  const auto topk = static_cast<double>(config.experts_per_token);
  AdapterNumbers numbers;
  for (const AdapterSpec& spec : adapters) {
    const AdapterSite& site = spec.site;
    const auto count = static_cast<double>(spec.num_values());
    if (site.expert < 0) {
      numbers.common += count;
      numbers.rows += count;
      if (site.heads > 0) {  // keys and values of each meet A
        numbers.rows += static_cast<double>((2 * site.heads - 1) * spec.a_values());
      }
    } else {
      numbers.experts += count;
      numbers.choices += count * topk / static_cast<double>(site.num_experts);
    }
  }
  return numbers;
}

RankSamples rank_samples(std::int64_t samples, std::int64_t tokens, const CostRanks& ranks,
                         std::int64_t batch_size) {
  const std::int64_t own = std::max<std::int64_t>(1, divide_up(samples, ranks.ranks));
  const std::int64_t at_once = std::max<std::int64_t>(1, batch_size / tokens);
  const auto passes = static_cast<double>(divide_up(own, at_once));
  return {.samples = own,
          .passes = passes,
          .pass_rows = static_cast<double>(own * tokens) / passes,
          .all = ranks.texts_of_sharers(samples)};
}

CostStep sample_pass(const Options& options, const ModelConfig& config, const RankSamples& samples,
                     std::int64_t tokens) {
  const MixerWork mixing =
      pass_work(config, options.precision,
                {.sequences = samples.samples, .tokens = tokens, .at_once = tokens});
  return {.rows = samples.pass_rows,
          .logits_rows = samples.pass_rows,
          .attention_flops = mixing.flops / samples.passes,
          .texts = samples.all};
}

CostTraining training_of(const Options& options, const AdapterNumbers& adapters,
                         const CostRanks& ranks, const RankSamples& samples) {
  constexpr double kGradientBytes = 8;
  const double own_experts = adapters.experts / ranks.sharers();
  const double summed = adapters.common + (ranks.expert_replicas > 1 ? own_experts : 0);
  // Experts meet the rows of all ranks, of which some may have fewer.
  const double mean = static_cast<double>(samples.all) / ranks.sharers();
  // Each rank adds one slice for all and hands it on: there and back.
  const double others = static_cast<double>(ranks.ranks - 1) / ranks.ranks;
  return {.passes = samples.passes,
          .recomputes = options.recompute == RecomputeChoice::always,
          .row_factors = adapters.rows,
          .choice_factors = adapters.choices * mean / static_cast<double>(samples.samples),
          .values = adapters.common + own_experts,
          .sum_bytes = 2 * others * kGradientBytes * summed};
}

}  // namespace moesaic
