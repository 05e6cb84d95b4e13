#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "kernels/vector_kernels.h"

namespace moesaic {

/// How rotary frequencies are scaled to longer contexts; named as transformers names them.
enum class RopeType { plain, linear, dynamic, yarn, llama3, longrope };

/// "default", "linear", "dynamic", "yarn", "llama3" or "longrope".
[[nodiscard]] std::string_view rope_type_name(RopeType type) noexcept;

/// Rotary position embedding, all defaults resolved: what transformers/modeling_rope_utils.py
/// computes frequencies from. A field that a type does not use keeps the value below.
struct RopeConfig {
  RopeType type = RopeType::plain;
  RotaryForm form = RotaryForm::halves;  ///< the family's: no field says it
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;  ///< share of head_dim that is rotated
  std::int64_t rotary_dim = 0;         ///< floor(head_dim * partial_rotary_factor), even
  double factor = 1.0;                 ///< linear, dynamic, yarn, llama3, longrope
  /// Tokens of the context before scaling: dynamic, yarn, llama3, longrope.
  std::int64_t original_max_position = 0;
  double attention_factor = 1.0;     ///< cos and sin are multiplied by it: yarn, longrope
  double mscale_all_dim = 0.0;       ///< as it is there, of all types: see attention_mscale()
  double beta_fast = 32.0;           ///< yarn
  double beta_slow = 1.0;            ///< yarn
  bool truncate = true;              ///< yarn: round the correction range to whole dimensions
  double low_freq_factor = 1.0;      ///< llama3
  double high_freq_factor = 1.0;     ///< llama3
  std::vector<double> short_factor;  ///< [rotary_dim / 2] longrope, up to original_max_position
  std::vector<double> long_factor;   ///< [rotary_dim / 2] longrope, beyond it
};

/// What latent attention multiplies its queries by, and its keys too: with a `mscale_all_dim` and a
/// factor above 1 it is 0.1 mscale_all_dim ln(factor) + 1, else 1.
[[nodiscard]] double attention_mscale(const RopeConfig& rope) noexcept;

/// RopeContext::default_scaling of most families.
inline constexpr std::string_view kNoScaling = R"({"rope_type": "default"})";

/// What of the rest of the model the rotary embedding depends on.
struct RopeContext {
  double default_theta = 10000.0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double default_partial_factor = 1.0;
  /// What the default comes from.
  std::string_view partial_key = "partial_rotary_factor";
  /// JSON of the scaling of a config that says nothing of it.
  std::string_view default_scaling = kNoScaling;
};

/// Reads `rope_parameters` (transformers 5) or `rope_theta`, `rope_scaling` and
/// `partial_rotary_factor` (transformers 4) of a config.json. Throws Error{file} naming file, field
/// and value.
[[nodiscard]] RopeConfig read_rope_config(const Json& config, const RopeContext& context);

}  // namespace moesaic
