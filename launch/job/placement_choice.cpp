#include "launch/job/placement_choice.h"

#include <fmt/core.h>

#include <array>

#include "base/checksum.h"
#include "launch/job/agreement.h"

namespace moesaic {

ModelExperts experts_of(const ModelConfig& config) {
  ModelExperts model{.layers = std::ssize(config.layers),
                     .with = {},
                     .experts = config.num_experts,
                     .experts_per_token = config.experts_per_token};
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    const bool has_experts = config.layers[l].feed_forward->sizes().experts > 0;
    if (has_experts) model.with.push_back(static_cast<std::int64_t>(l));
  }
  return model;
}

PlacementChoice::PlacementChoice(const std::string& placement)
    : round_robin_(placement == "round_robin") {
  if (!round_robin_ && placement != "contiguous") record_ = read_expert_record(placement);
}

ModelPlacement PlacementChoice::place(const ModelConfig& config, int num_ranks) const {
  if (record_) return place_by_record(*record_, experts_of(config), num_ranks);
  return ModelPlacement(round_robin_ ? ExpertPlacement::round_robin(config.num_experts, num_ranks)
                                     : ExpertPlacement(config.num_experts, num_ranks));
}

std::uint64_t PlacementChoice::fingerprint() const {
  if (!record_) return 0;
  Checksum sum;
  for (const std::vector<double>& layer : record_->rows) sum.add(std::as_bytes(std::span(layer)));
  return sum.value();
}

ModelPlacement place_experts(const Runtime& runtime, const ModelConfig& config) {
  std::optional<ModelPlacement> placement;
  Shared shared{.what = "the files of --placement"};
  agree(runtime.world(), [&] {
    const PlacementChoice choice(runtime.options().placement);
    shared.fingerprint = choice.fingerprint();
    placement = choice.place(config, runtime.grid().experts().size());
  });
  require_same(runtime.world(), {&shared, 1});
  return *std::move(placement);
}

}  // namespace moesaic
