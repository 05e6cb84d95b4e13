#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/model/head_products.h"
#include "src/model/layer_context.h"
#include "src/model/mla_kind.h"

namespace moesaic {

/// The rows of kv_b_proj that make keys, [nope_dim, latent] of a head, and its adapter.
[[nodiscard]] HeadMatrix mla_keys(const MlaConfig& config, const WeightSet& weights);
/// Those that make values, [value_dim, latent] of a head.
[[nodiscard]] HeadMatrix mla_values(const MlaConfig& config, const WeightSet& weights);

/// What lies between the projections of latent attention and its scores, a row at a time: forward,
/// and once more for the way back.
class MlaInputs {
 public:
  /// Both must outlive this.
  MlaInputs(const MlaConfig& config, const LayerContext& context)
      : config_(config), context_(context) {}

  /// y = the norm of x whose weights are `which`; also in place.
  void norm(const WeightSet& weights, std::size_t which, std::span<const float> x, float* y) const;
  /// The key [key_dim] of a latent as projected, normed and rotated; also in place.
  void make_key(const WeightSet& weights, const RotaryAngles& angles,
                std::span<const float> projected, float* key) const;
  /// The rotated part of a row's queries, from those as projected, query_dim of each of `heads`, to
  /// `met` [all_rows, key_dim].
  void rotate_queries(const HeadRange& heads, std::int64_t row, const RotaryAngles& angles,
                      const HeadRows<const float>& projected, const MatrixView<float>& met) const;

 private:
  const MlaConfig& config_;
  const LayerContext& context_;
};

}  // namespace moesaic
