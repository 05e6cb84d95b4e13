#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/config_reader.h"
#include "src/model/model_config.h"

namespace moesaic {

/// Makes a mixer of what config.json says; `model` has what all layers share.
using ReadMixer =
    std::function<std::shared_ptr<const MixerKind>(const ConfigReader&, const ModelConfig& model)>;
/// Makes a feed-forward part.
using ReadFeedForward =
    std::function<std::shared_ptr<const FeedForwardKind>(const ConfigReader&, const ModelConfig&)>;

/// A mixer that layers of a family may have, by its name in the field `layer_types`.
struct MixerRow {
  std::string layer_type;
  ReadMixer read;
};

/// A family of models: names, defaults where config.json is silent (those of transformers'
/// configuration class), and the kinds of its layers.
struct Family {
  std::string name;                    ///< the `model_type`
  std::vector<std::string> aliases{};  ///< others that mean the same
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  float norm_offset = 0;  ///< added to the weights that norms store, but for one within a mixer
  bool tie_word_embeddings = false;
  std::optional<std::int64_t> bos_token_id{};
  std::optional<std::int64_t> eos_token_id{};
  /// PEFT on transformers 5 loads adapters of separate experts rightly (docs/formats.md).
  bool peft5_takes_experts = false;
  bool in_transformers4 = true;  ///< not in transformers 5 alone
  /// transformers 4 multiplies scores by the factor of mscale_all_dim, as 5 does.
  bool scales_scores_in_transformers4 = true;
  bool has_multipliers = false;  ///< embedding_multiplier, residual_multiplier, logits_scaling

  std::vector<MixerRow> mixers;
  /// The layer type of a layer that `layer_types` does not name.
  std::function<std::string_view(const ConfigReader&, std::int64_t layer)> usual_layer_type;
  bool reads_layer_types = false;  ///< transformers heeds `layer_types` in this family

  /// Which layers have experts; absent: all.
  std::function<std::vector<bool>(const ConfigReader&, std::int64_t num_layers)> moe_layers{};
  ReadFeedForward experts;
  ReadFeedForward plain_mlp{};  ///< of layers without experts
};

/// The families that Moesaic runs.
[[nodiscard]] const std::vector<Family>& known_families();

}  // namespace moesaic
