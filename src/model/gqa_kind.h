#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/checkpoint/rope_config.h"
#include "src/model/attention_plan.h"
#include "src/model/family.h"
#include "src/model/token_mixer.h"

namespace moesaic {

/// RMSNorm of queries and keys before the rotary embedding.
enum class QkNorm {
  none,
  per_head,  ///< weights [head_dim], each head by itself (qwen3_moe)
  whole      ///< weights [heads * head_dim], over all heads at once (olmoe)
};

/// Causal grouped-query attention with rotary positions, in the sizes of one model.
struct GqaConfig {
  std::int64_t hidden = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  bool sinks = false;  ///< each query head has a score that no value goes with
  /// What attention gives is weighted by a sigmoid, of as many rows of q_proj as there are queries:
  /// behind those of each head.
  bool gated = false;
  float norm_offset = 0;  ///< as ModelConfig
  double rms_norm_eps = 1e-6;
  std::optional<double> clip_qkv{};  ///< queries, keys and values are clamped to +- this
  double scale = 1.0;                ///< logits of attention are multiplied by it
  std::int64_t window = 0;           ///< a position sees itself and window - 1 before it; 0: all
  RopeConfig rope{};

  [[nodiscard]] AttentionShape shape() const noexcept {
    return {.kv_heads = num_kv_heads, .group = group(), .value_dim = head_dim, .window = window};
  }
  /// Query heads of a KV head.
  [[nodiscard]] std::int64_t group() const noexcept { return num_heads / num_kv_heads; }
  /// Columns of the query projection's output.
  [[nodiscard]] std::int64_t q_width() const noexcept { return num_heads * head_dim; }
  /// Columns of the key projection's output, and of the value projection's.
  [[nodiscard]] std::int64_t kv_width() const noexcept { return num_kv_heads * head_dim; }
  /// Columns of the query projection's output that are gates.
  [[nodiscard]] std::int64_t gate_width() const noexcept { return gated ? q_width() : 0; }
  /// Columns of all projections' outputs: row_width(), and gates.
  [[nodiscard]] std::int64_t projected_width() const noexcept { return gate_width() + row_width(); }
  /// Of all three projections: queries, keys, values.
  [[nodiscard]] std::int64_t row_width() const noexcept { return q_width() + 2 * kv_width(); }
};

/// Places in the weight set.
enum GqaWeight : std::size_t { kQkv, kQkvBias, kO, kOBias, kQNorm, kKNorm, kSinks };

class GqaKind : public MixerKind {
 public:
  explicit GqaKind(const GqaConfig& config) : config_(config) {}

  [[nodiscard]] const GqaConfig& config() const noexcept { return config_; }

  /// qkv [projected_width, hidden], qkv_bias, o [hidden, q_width], o_bias, q_norm, k_norm,
  /// sinks [num_heads].
  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override;
  [[nodiscard]] CacheNeeds cache(Precision precision) const override;
  [[nodiscard]] MixerWork work(Precision precision, std::int64_t tokens) const override;
  [[nodiscard]] double left_out_flops(std::int64_t tokens) const override;
  [[nodiscard]] TokenNumbers token_numbers() const override;
  [[nodiscard]] std::int64_t row_bytes() const override;
  [[nodiscard]] std::int64_t pass_bytes(const PassSize& pass) const override;
  [[nodiscard]] std::int64_t kept_bytes() const override;
  [[nodiscard]] std::int64_t backward_bytes() const override;
  [[nodiscard]] std::int64_t backward_pass_bytes(const PassSize& pass) const override;
  [[nodiscard]] std::int64_t window() const override { return config_.window; }
  [[nodiscard]] bool depends_on_prompt_length() const override;
  [[nodiscard]] MixerText text() const override;
  void write_fields(JsonWriter& out) const override;
  [[nodiscard]] std::unique_ptr<TokenMixer> make_mixer(LayerContext& context) const override;

 private:
  GqaConfig config_;
};

/// Which positions a layer sees.
enum class GqaSpan { all, window };

/// A bias that a field of config.json asks for.
struct GqaBias {
  std::string key;
  bool otherwise = false;
};

/// How a family's grouped-query attention differs from the plain one.
struct GqaTraits {
  std::int64_t num_kv_heads = 0;    ///< where config.json is silent; 0: as many as heads
  std::int64_t head_dim = 0;        ///< the same; 0: hidden_size / heads
  double rope_theta = 1e4;          ///< the same
  std::string_view rope_scaling{};  ///< RopeContext::default_scaling; empty: its default
  std::int64_t window = 0;          ///< the same, of GqaSpan::window
  std::string window_flag{};        ///< field without which there is no window; empty: none
  bool needs_window = false;        ///< transformers refuses layers of GqaSpan::window without one
  std::optional<GqaBias> qkv_bias{};
  std::optional<GqaBias> o_bias{};
  QkNorm qk_norm = QkNorm::none;
  std::string qk_norm_flag{};  ///< field without which there is no such norm; empty: none
  /// Share of a head that is rotated where config.json is silent; absent: always all of it.
  std::optional<double> rotated_share{};
  std::string rotary_dim_key{};  ///< field of how many elements that are; empty: none
  RotaryForm rotary_form = RotaryForm::halves;
  bool sinks = false;       ///< tensors self_attn.sinks
  bool gated = false;       ///< as GqaConfig
  std::string clip_key{};   ///< field of clip_qkv; empty: none
  std::string scale_key{};  ///< field of the scale, by default 1; empty: 1 / sqrt(head_dim)
};

[[nodiscard]] ReadMixer read_gqa(GqaTraits traits, GqaSpan span);

}  // namespace moesaic
