#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "src/checkpoint/rope_config.h"

namespace moesaic {

enum class ModelFamily { qwen3_moe, qwen2_moe, olmoe, mixtral, granitemoe };

/// The `model_type` of config.json.
[[nodiscard]] std::string_view family_name(ModelFamily family) noexcept;

/// RMSNorm of queries and keys before the rotary embedding.
enum class QkNorm {
  none,
  per_head,  ///< weights [head_dim], each head by itself (qwen3_moe)
  whole      ///< weights [heads * head_dim], over all heads at once (olmoe)
};

/// Over which logits the router's softmax goes.
enum class RouterSoftmax {
  all_experts,  ///< softmax over all, then the top k of it
  top_k         ///< top k logits, then softmax over these (granitemoe)
};

/// What the engine has to know of a model, every default resolved as transformers resolves it.
/// Shapes of weights are [rows, cols] = [out, in].
struct ModelConfig {
  ModelFamily family = ModelFamily::qwen3_moe;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;  ///< lm_head is the embedding
  std::string dtype;                 ///< as config.json says, such as "bfloat16"; may be empty

  // Attention.
  bool qkv_bias = false;
  bool o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  std::optional<double> clip_qkv;  ///< queries, keys and values are clamped to +- this
  double attention_scale = 1.0;    ///< logits of attention are multiplied by it
  /// [num_layers]: a position sees itself and the sliding_window - 1 before it; 0 sees all.
  std::vector<std::int64_t> sliding_window;
  RopeConfig rope;

  // Experts.
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t moe_intermediate = 0;     ///< width of one expert
  std::int64_t dense_intermediate = 0;   ///< width of the MLP of layers that are not MoE; 0 none
  std::int64_t shared_intermediate = 0;  ///< width of the gated shared expert; 0 none
  RouterSoftmax router_softmax = RouterSoftmax::all_experts;
  bool norm_topk_prob = false;  ///< the k weights are divided by their sum
  std::vector<bool> is_moe;     ///< [num_layers]

  // Multipliers (granitemoe; 1 elsewhere).
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_scaling = 1.0;  ///< logits are divided by it

  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  ///< any of these ends a text

  /// Columns of the query projection's output.
  [[nodiscard]] std::int64_t q_width() const noexcept { return num_heads * head_dim; }
  /// Columns of the key projection's output, and of the value projection's.
  [[nodiscard]] std::int64_t kv_width() const noexcept { return num_kv_heads * head_dim; }
  [[nodiscard]] std::int64_t num_moe_layers() const noexcept;
};

/// Reads config.json, and generation_config.json where there is one. Throws Error{file} naming
/// file, field and value.
[[nodiscard]] ModelConfig read_model_config(const std::string& directory);

/// The same from parsed documents. `generation` may be absent.
[[nodiscard]] ModelConfig parse_model_config(const Json& config,
                                             const std::optional<Json>& generation);

}  // namespace moesaic
