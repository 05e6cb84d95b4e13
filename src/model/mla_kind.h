#pragma once

#include <algorithm>
#include <cstdint>

#include "src/checkpoint/rope_config.h"
#include "src/model/attention_plan.h"
#include "src/model/family.h"
#include "src/model/token_mixer.h"

namespace moesaic {

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) in the sizes of one
/// model. A token keeps one latent and one rotary key for all heads; the matrices that would make
/// each head's keys and values of the latent meet queries and results instead.
struct MlaConfig {
  /// Of the norms of the latent and of the queries' inner rows, whatever the model's own is.
  static constexpr float kNormEpsilon = 1e-6F;

  std::int64_t hidden = 0;
  std::int64_t num_heads = 0;
  std::int64_t query_rank = 0;  ///< `q_lora_rank`; 0: queries are one product
  std::int64_t latent = 0;      ///< `kv_lora_rank`
  std::int64_t nope_dim = 0;    ///< `qk_nope_head_dim`: of a head, not rotated
  std::int64_t rope_dim = 0;    ///< `qk_rope_head_dim`: of a head, rotated
  std::int64_t value_dim = 0;   ///< `v_head_dim`
  bool bias = false;            ///< of q_a, kv_a and o
  double scale = 1.0;           ///< logits of attention are multiplied by it
  RopeConfig rope{};

  /// Of a head's query as it is projected.
  [[nodiscard]] std::int64_t query_dim() const noexcept { return nope_dim + rope_dim; }
  /// Of the key that all heads share, and of a head's query as it meets it: the latent part, then
  /// the rotated one.
  [[nodiscard]] std::int64_t key_dim() const noexcept { return latent + rope_dim; }
  /// Of all heads.
  [[nodiscard]] std::int64_t queries_width() const noexcept { return num_heads * query_dim(); }
  /// Numbers of a token before attention: its inner query row, queries, latent and rotary key.
  [[nodiscard]] std::int64_t projected_width() const noexcept {
    return std::max(query_rank + queries_width() + key_dim(), num_heads * value_dim);
  }
  /// Numbers of a token that attention works on.
  [[nodiscard]] std::int64_t mixed_width() const noexcept {
    return num_heads * std::max(key_dim(), value_dim);
  }
  /// Numbers of a token that a backward pass needs (MlaStash).
  [[nodiscard]] std::int64_t kept_width() const noexcept {
    return query_rank + queries_width() + key_dim() + num_heads * (value_dim + latent + 1);
  }
  /// Heads that a backward pass has at work together: enough for the threads.
  [[nodiscard]] std::int64_t heads_at_once(int threads) const noexcept;
  /// Numbers of a token and a head at work (MlaGradient).
  [[nodiscard]] std::int64_t gradient_width() const noexcept {
    return 3 * key_dim() + 2 * latent + nope_dim;
  }
  /// How attention of so many tokens is cut for so many threads: all heads have one key, but not
  /// all of them need to be in one task.
  [[nodiscard]] AttentionShape shape(std::int64_t tokens, int threads) const noexcept;
};

/// Places in the weight set.
struct MlaWeight {
  enum : std::size_t {
    kQA,
    kQABias,
    kQANorm,
    kQ,
    kKvA,
    kKvABias,
    kKvANorm,
    kKeys,
    kValues,
    kOut,
    kOutBias,
    kCount
  };
};

class MlaKind : public MixerKind {
 public:
  explicit MlaKind(const MlaConfig& config) : config_(config) {}

  [[nodiscard]] const MlaConfig& config() const noexcept { return config_; }

  /// q_a [query_rank, hidden], its bias and norm; q [heads * query_dim, query_rank or hidden];
  /// kv_a [key_dim, hidden], its bias and norm; keys [heads * nope_dim, latent] and values
  /// [heads * value_dim, latent], of which each head has rows of its own; o [hidden, heads *
  /// value_dim] and its bias.
  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override;
  [[nodiscard]] CacheNeeds cache(Precision precision) const override;
  [[nodiscard]] MixerWork work(Precision precision, std::int64_t tokens) const override;
  [[nodiscard]] double left_out_flops(std::int64_t tokens) const override;
  [[nodiscard]] TokenNumbers token_numbers() const override;
  [[nodiscard]] std::int64_t row_bytes() const override;
  [[nodiscard]] std::int64_t pass_bytes(const PassSize& pass) const override;
  [[nodiscard]] std::int64_t kept_bytes() const override { return 4 * config_.kept_width(); }
  [[nodiscard]] std::int64_t backward_bytes() const override;
  [[nodiscard]] std::int64_t backward_pass_bytes(const PassSize& pass) const override;
  [[nodiscard]] bool depends_on_prompt_length() const override;
  [[nodiscard]] MixerText text() const override;
  void write_fields(JsonWriter& out) const override;
  [[nodiscard]] std::unique_ptr<TokenMixer> make_mixer(LayerContext& context) const override;

 private:
  MlaConfig config_;
};

/// How a family's latent attention differs from that of DeepSeek-V3.
struct MlaTraits {
  std::int64_t query_rank = 1536;    ///< where config.json is silent; null says that there is none
  bool rotates_pairs_alone = false;  ///< the field rope_interleave says nothing
};

[[nodiscard]] ReadMixer read_mla(const MlaTraits& traits = {});

}  // namespace moesaic
