#include "src/model/mla_inputs.h"

#include <algorithm>

namespace moesaic {

HeadMatrix mla_keys(const MlaConfig& config, const WeightSet& weights) {
  return {.all = weights[MlaWeight::kKeys].matrix,
          .rows = config.nope_dim,
          .adapter = weights[MlaWeight::kKeys].adapter,
          .module_rows = config.nope_dim + config.value_dim};
}

HeadMatrix mla_values(const MlaConfig& config, const WeightSet& weights) {
  return {.all = weights[MlaWeight::kValues].matrix,
          .rows = config.value_dim,
          .adapter = weights[MlaWeight::kKeys].adapter,  // of the whole module
          .module_rows = config.nope_dim + config.value_dim,
          .first_row = config.nope_dim};
}

void MlaInputs::norm(const WeightSet& weights, std::size_t which, std::span<const float> x,
                     float* y) const {
  context_.compute.vector->rms_norm(x.data(), weights[which].vector.data(), MlaConfig::kNormEpsilon,
                                    std::ssize(x), y);
}

void MlaInputs::make_key(const WeightSet& weights, const RotaryAngles& angles,
                         std::span<const float> projected, float* key) const {
  const auto latent = static_cast<std::size_t>(config_.latent);
  norm(weights, MlaWeight::kKvANorm, projected.first(latent), key);
  if (projected.data() != key) {
    std::copy_n(projected.data() + latent, config_.rope_dim, key + latent);
  }
  context_.compute.vector->rotate(angles, key + latent);
}

void MlaInputs::rotate_queries(const HeadRange& heads, std::int64_t row, const RotaryAngles& angles,
                               const HeadRows<const float>& projected,
                               const MatrixView<float>& met) const {
  for (std::int64_t i = 0; i < heads.count; ++i) {
    float* const rotated = met.row(i * heads.rows + row).data() + config_.latent;
    std::copy_n(projected.at(row, i) + config_.nope_dim, config_.rope_dim, rotated);
    context_.compute.vector->rotate(angles, rotated);
  }
}

}  // namespace moesaic
