#pragma once

#include "src/model/batch.h"
#include "src/model/layer_context.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"

namespace moesaic {

/// The beginning of a model: the rows of its embedding that the tokens of a batch name.
class Embedding {
 public:
  /// All must outlive this.
  Embedding(const ModelConfig& config, const ModelWeights& weights, LayerContext& context)
      : config_(config), weights_(weights), context_(context) {}

  /// Overwrites `x` [rows, hidden] with the residual stream that goes into the first layer.
  void forward(const Batch& batch, MatrixView<float> x) const;

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  LayerContext& context_;
};

}  // namespace moesaic
