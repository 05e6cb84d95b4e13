#pragma once

#include <memory>

#include "src/model/feed_forward.h"
#include "src/model/model_weights.h"
#include "src/model/token_mixer.h"

namespace moesaic {

/// x += mixer(norm(x)); x += feed_forward(norm(x)).
class DecoderLayer {
 public:
  struct Parts {
    std::int64_t index = 0;  // in the model
    const LayerWeights& weights;
    TokenMixer& mixer;  // of all layers of its kind
    std::unique_ptr<FeedForward> feed_forward;
  };
  /// What the parts refer to and `context` must outlive this.
  DecoderLayer(Parts parts, LayerContext& context) : parts_(std::move(parts)), context_(context) {}

  /// `x` [rows, hidden]: the residual stream of the batch that the mixer began. Collective over the
  /// experts' group.
  void forward(const Batch& batch, MatrixView<float> x);

 private:
  void norm(MatrixView<const float> x, std::span<const float> weight, MatrixView<float> y) const;
  void add_residual(MatrixView<const float> y, MatrixView<float> x) const;

  Parts parts_;
  LayerContext& context_;
};

}  // namespace moesaic
