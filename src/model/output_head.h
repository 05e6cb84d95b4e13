#pragma once

#include <cstdint>
#include <span>

#include "src/model/layer_context.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"

namespace moesaic {

/// The end of a model: final norm and output matrix, for the rows that somebody asks about.
class OutputHead {
 public:
  /// All must outlive this.
  OutputHead(const ModelConfig& config, const ModelWeights& weights, LayerContext& context)
      : config_(config), weights_(weights), context_(context) {}

  /// logits [rows, vocab] of rows of `x` [all rows, hidden], what the last layer gave;
  /// `normed` [rows, hidden] gets what they are computed from.
  void forward(MatrixView<const float> x, std::span<const std::int64_t> rows,
               MatrixView<float> normed, MatrixView<float> logits) const;

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  LayerContext& context_;
};

}  // namespace moesaic
