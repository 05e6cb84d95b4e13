#pragma once

#include <cstdint>
#include <string>

#include "src/model/model_config.h"
#include "src/model/model_names.h"

namespace moesaic {

/// Sizes of a model that follow from its configuration.
struct ModelFacts {
  std::int64_t total_parameters = 0;
  std::int64_t expert_parameters = 0;  // of the routed experts
  /// Used for one token: all but the experts that are not chosen.
  std::int64_t active_parameters = 0;
  /// Of the active ones, those that are multiplied with: not the looked-up embedding.
  std::int64_t multiplied_parameters = 0;
};

[[nodiscard]] ModelFacts count_parameters(const ModelConfig& config, const ModelNames& names);

/// What the mixers of all layers take for `tokens` tokens at positions 0, 1, ..., without the
/// products with weights.
[[nodiscard]] MixerWork mixer_work(const ModelConfig& config, Precision precision,
                                   std::int64_t tokens);

/// "7.98 M", "1.33 B".
[[nodiscard]] std::string format_count(std::int64_t count);

}  // namespace moesaic
