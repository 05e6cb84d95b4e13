#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "launch/layer_copies.h"
#include "launch/sample_rows.h"

namespace moesaic {

/// Measures the parts of a layer one by one, as products and vector work without the layer around
/// them: the sum of their times is what the layer could take if it lost nothing between them.
class LayerParts {
 public:
  /// Products of up to `most_rows` rows. `layer` and what `compute` points to outlive this.
  LayerParts(LayerCopies& layer, std::int64_t most_rows, const Compute& compute, double seconds);

  /// Seconds of gate, up and down of one expert, with weights that were not used lately.
  [[nodiscard]] double expert(std::int64_t rows);
  /// Of the router for the tokens `x` [tokens, hidden].
  [[nodiscard]] double router(MatrixView<const float> x);
  /// Of the weighted sums of the results of this many tokens.
  [[nodiscard]] double combine(std::int64_t tokens);

 private:
  double product(PackedMatrix ExpertWeights::*which, const SampleRows& input, std::int64_t rows);

  LayerCopies* layer_;
  Compute compute_;
  double seconds_;
  GroupedGemm gemm_;
  SampleRows hidden_rows_;
  SampleRows inner_rows_;
  std::vector<const ExpertWeights*> experts_;  // of all copies
  Rotation rotation_;
  Buffer<float> out_;
  std::map<std::int64_t, double> expert_seconds_;  // by rows
};

}  // namespace moesaic
