#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/model/family.h"
#include "src/model/feed_forward.h"

namespace moesaic {

/// Whether the chosen experts' weights are divided by their sum. The first two: as the field
/// norm_topk_prob says, or so where it is silent.
enum class Normalize { if_asked, unless_denied, always, never };

/// Sets width and gate of the shared expert.
using ReadShared = std::function<void(const ConfigReader& reader, MoeConfig& config)>;

/// How a family's experts differ from those of qwen3_moe.
struct MoeTraits {
  std::string width_key = "moe_intermediate_size";
  std::string topk_key = "num_experts_per_tok";
  Normalize normalize = Normalize::if_asked;  ///< not of logits
  RouterOptions router{};                     ///< what config.json does not say
  std::string scale_key{};                    ///< field of the factor of all weights; empty: none
  double usual_scale = 1.0;                   ///< where that is silent
  std::string least_sum_key{};                ///< field of RouterOptions::least_sum; empty: none
  bool has_groups = false;                    ///< fields n_group, topk_group
  std::string topk_method{};                  ///< the only one that there is; empty: any
  bool may_be_greedy = false;                 ///< or "greedy", the usual one: without groups
  std::string scoring{};                      ///< the only scoring_func that there is; empty: any
  std::string mlp_bias_key{};  ///< field of biases that are not known here; empty: none
  bool choice_bias = false;
  bool router_bias = false;
  bool expert_bias = false;
  bool is_clamped = false;   ///< the gating of gpt_oss
  bool takes_turns = false;  ///< MoeConfig::takes_turns
  bool lies_across = false;  ///< MoeConfig::lies_across
  ReadShared shared{};
  MoeNames usual_names = MoeNames::qwen;
};

[[nodiscard]] ReadFeedForward read_experts(MoeTraits traits);
/// Of layers without experts, of the width in the field intermediate_size.
[[nodiscard]] ReadFeedForward read_plain_mlp();

/// One of a width of its own, `otherwise` where config.json is silent, that a gate weights.
[[nodiscard]] ReadShared gated_shared_expert(std::int64_t otherwise);
/// So many as the field says, as one of their width together.
[[nodiscard]] ReadShared shared_experts(std::string count_key, std::int64_t otherwise);

/// Which layers have experts, by decoder_sparse_step and mlp_only_layers
/// (`Qwen3MoeDecoderLayer.__init__`, and the same in qwen2_moe).
[[nodiscard]] std::vector<bool> sparse_steps(const ConfigReader& reader, std::int64_t num_layers);
/// The same: mlp_layer_types, or all after the first_k_dense_replace first ones, which are
/// `otherwise` where config.json is silent.
[[nodiscard]] std::function<std::vector<bool>(const ConfigReader&, std::int64_t num_layers)>
after_first_dense(std::int64_t otherwise);

/// The same, by moe_layer_start_index, moe_layer_end_index and moe_layer_interval (ernie4_5_moe).
[[nodiscard]] std::vector<bool> layer_interval(const ConfigReader& reader, std::int64_t num_layers);

}  // namespace moesaic
