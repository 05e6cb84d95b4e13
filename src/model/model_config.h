#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "src/model/feed_forward.h"
#include "src/model/token_mixer.h"

namespace moesaic {

/// What one layer is made of. Layers that are alike share the objects.
struct LayerConfig {
  std::shared_ptr<const MixerKind> mixer;
  std::shared_ptr<const FeedForwardKind> feed_forward;
};

/// What the engine has to know of a model, every default resolved as transformers resolves it.
/// Shapes of weights are [rows, cols] = [out, in].
struct ModelConfig {
  std::string family;                ///< the `model_type` of config.json
  bool peft5_takes_experts = false;  ///< as Family
  bool in_transformers4 = true;      ///< the same
  /// transformers 4 has the family, and computes the same of this model.
  bool alike_in_transformers4 = true;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  float norm_offset = 0;             ///< as Family
  bool tie_word_embeddings = false;  ///< lm_head is the embedding
  std::string dtype;                 ///< as config.json says, such as "bfloat16"; may be empty

  std::vector<LayerConfig> layers;
  /// Of the layers that have experts, which are alike; each at least 1 once a file is read.
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;

  // Multipliers (granitemoe; 1 elsewhere).
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_scaling = 1.0;  ///< logits are divided by it

  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  ///< any of these ends a text

  [[nodiscard]] std::int64_t num_layers() const noexcept { return std::ssize(layers); }
  [[nodiscard]] std::int64_t num_moe_layers() const;
};

struct Family;

/// Reads config.json, and generation_config.json where there is one. Throws Error{file} naming
/// file, field and value. `families`: those that are known; by default known_families().
[[nodiscard]] ModelConfig read_model_config(const std::string& directory);
[[nodiscard]] ModelConfig read_model_config(const std::string& directory,
                                            std::span<const Family> families);

/// The same from parsed documents. `generation` may be absent.
[[nodiscard]] ModelConfig parse_model_config(const Json& config,
                                             const std::optional<Json>& generation,
                                             std::span<const Family> families);
[[nodiscard]] ModelConfig parse_model_config(const Json& config,
                                             const std::optional<Json>& generation);

}  // namespace moesaic
