#pragma once

#include <cstdint>

#include "base/rounding.h"
#include "kernels/delta_kernels.h"
#include "src/model/family.h"
#include "src/model/token_mixer.h"

namespace moesaic {

/// How the rows of a gated delta net's projections lie in its tensors.
enum class DeltaForm {
  by_key_head,  ///< in_proj_qkvz, in_proj_ba: all that belongs to a key head, one after the other
  separate      ///< in_proj_qkv, in_proj_z, in_proj_b, in_proj_a: all heads of each part
};

/// What the convolution of a gated delta net works on.
enum class DeltaPart { query, key, value };

/// One of its heads.
struct DeltaHead {
  DeltaPart part = DeltaPart::query;
  std::int64_t width = 0;
  std::int64_t column = 0;   // where its part of a projected row begins
  std::int64_t channel = 0;  // its first one: those of all queries, then keys, then values
};

/// A gated delta net (arXiv:2412.06464, equation 10) in the sizes of one model. Heads of values
/// share keys and queries in groups. A sequence keeps a state [key_dim, value_dim] a value head,
/// whatever its length, and the last rows that its convolution meets again.
struct DeltaConfig {
  /// Added to the sum of squares that queries and keys are divided by the root of.
  static constexpr float kUnitEpsilon = 1e-6F;

  std::int64_t hidden = 0;
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;    // of a head
  std::int64_t value_dim = 0;  // of a head
  std::int64_t taps = 0;       // of the convolution
  double rms_norm_eps = 1e-6;
  DeltaForm form = DeltaForm::by_key_head;

  /// Value heads of a key head.
  [[nodiscard]] std::int64_t group() const noexcept { return value_heads / key_heads; }
  [[nodiscard]] std::int64_t key_width() const noexcept { return key_heads * key_dim; }
  [[nodiscard]] std::int64_t value_width() const noexcept { return value_heads * value_dim; }
  /// What the convolution works on: all queries, all keys, all values.
  [[nodiscard]] std::int64_t channels() const noexcept { return 2 * key_width() + value_width(); }
  /// Of the input projection: channels and gates of the output, as `form` orders them.
  [[nodiscard]] std::int64_t projected_width() const noexcept { return channels() + value_width(); }

  // Where a head's part of a projected row begins.
  [[nodiscard]] std::int64_t query_column(std::int64_t key_head) const noexcept {
    return key_head * (form == DeltaForm::separate ? key_dim : key_head_columns());
  }
  [[nodiscard]] std::int64_t key_column(std::int64_t key_head) const noexcept {
    return query_column(key_head) + (form == DeltaForm::separate ? key_width() : key_dim);
  }
  [[nodiscard]] std::int64_t value_column(std::int64_t value_head) const noexcept {
    if (form == DeltaForm::separate) return 2 * key_width() + value_head * value_dim;
    return query_column(value_head / group()) + 2 * key_dim + value_head % group() * value_dim;
  }
  [[nodiscard]] std::int64_t gate_column(std::int64_t value_head) const noexcept {
    const std::int64_t values = form == DeltaForm::separate ? value_heads : group();
    return value_column(value_head) + values * value_dim;
  }
  [[nodiscard]] DeltaHead query_head(std::int64_t head) const noexcept {
    return {DeltaPart::query, key_dim, query_column(head), head * key_dim};
  }
  [[nodiscard]] DeltaHead key_head(std::int64_t head) const noexcept {
    return {DeltaPart::key, key_dim, key_column(head), key_width() + head * key_dim};
  }
  [[nodiscard]] DeltaHead value_head(std::int64_t head) const noexcept {
    return {DeltaPart::value, value_dim, value_column(head), 2 * key_width() + head * value_dim};
  }
  /// Of all of them, queries before keys before values.
  [[nodiscard]] DeltaHead convolved_head(std::int64_t head) const noexcept {
    if (head < key_heads) return query_head(head);
    if (head < 2 * key_heads) return key_head(head - key_heads);
    return value_head(head - 2 * key_heads);
  }

  /// Of a row of rates and steps [2 value_heads]: where a head's rate is. Its step stands
  /// step_distance() behind.
  [[nodiscard]] std::int64_t rate_column(std::int64_t value_head) const noexcept {
    if (form == DeltaForm::separate) return value_head;
    return value_head / group() * 2 * group() + value_head % group();
  }
  [[nodiscard]] std::int64_t step_distance() const noexcept {
    return form == DeltaForm::separate ? value_heads : group();
  }

  /// Floats of a value head's state, in blocks of columns (kernels/delta_kernels.h).
  [[nodiscard]] std::int64_t head_state() const noexcept {
    return key_dim * round_up(value_dim, kDeltaColumns);
  }
  /// What the convolution keeps [taps - 1, channels], and, from `first_state` on, the states
  /// [value_heads][head_state].
  [[nodiscard]] std::int64_t first_state() const noexcept {
    return round_up((taps - 1) * channels(), kDeltaColumns);
  }
  [[nodiscard]] std::int64_t state_floats() const noexcept {
    return first_state() + value_heads * head_state();
  }

 private:
  /// Columns of the projected row that belong to one key head.
  [[nodiscard]] std::int64_t key_head_columns() const noexcept {
    return 2 * key_dim + 2 * group() * value_dim;
  }
};

/// Places in the weight set.
struct DeltaWeight {
  enum Place : std::size_t {
    kIn,
    kRates,
    kConvolution,
    kDecayLogs,
    kStepBias,
    kNorm,
    kOut,
    kCount
  };
};

class DeltaKind : public MixerKind {
 public:
  explicit DeltaKind(const DeltaConfig& config) : config_(config) {}

  [[nodiscard]] const DeltaConfig& config() const noexcept { return config_; }

  /// in [projected_width, hidden]; rates and steps [2 value_heads, hidden], which are f32 in every
  /// precision: all later tokens meet what they do to the state; convolution [taps, channels],
  /// decay_logs [value_heads], step_bias [value_heads], norm [value_dim]; out [hidden,
  /// value_width].
  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override;
  [[nodiscard]] CacheNeeds cache(Precision precision) const override;
  [[nodiscard]] MixerWork work(Precision precision, std::int64_t tokens) const override;
  [[nodiscard]] std::int64_t row_bytes() const override;
  [[nodiscard]] std::int64_t kept_bytes() const override;
  [[nodiscard]] std::int64_t backward_bytes() const override;
  [[nodiscard]] std::int64_t backward_pass_bytes(const PassSize& pass) const override;
  [[nodiscard]] MixerText text() const override;
  void write_fields(JsonWriter& out) const override;
  [[nodiscard]] std::unique_ptr<TokenMixer> make_mixer(LayerContext& context) const override;

 private:
  DeltaConfig config_;
};

[[nodiscard]] ReadMixer read_delta(DeltaForm form);

}  // namespace moesaic
