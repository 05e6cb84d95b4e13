#include "launch/job/placement_choice.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/checksum.h"
#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/options/nearest_name.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 2> kDeals = {"contiguous", "round_robin"};

/// Other words are misspelt ones of kDeals.
void require_known(const std::string& placement) {
  if (is_meant_as_file(placement)) return;
  fail(ErrorKind::usage, "--placement: \"{}\" is neither contiguous, round_robin nor a file{}",
       placement, did_you_mean(placement, kDeals));
}

}  // namespace

bool is_meant_as_file(const std::string& word) {
  std::error_code ignored;
  return word.find_first_of("/.") != std::string::npos || std::filesystem::exists(word, ignored);
}

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
  if (round_robin_ || placement == "contiguous") return;
  require_known(placement);
  record_ = read_expert_record(placement);
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
