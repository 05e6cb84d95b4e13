#include "src/model/decoder_layer.h"

namespace moesaic {

void DecoderLayer::norm(MatrixView<const float> x, std::span<const float> weight,
                        MatrixView<float> y) const {
  context_.for_each_row(x.rows(), [&](std::int64_t row) {
    context_.compute.vector->rms_norm(x.row(row).data(), weight.data(), context_.config.epsilon,
                                      x.cols(), y.row(row).data());
  });
}

void DecoderLayer::add_residual(MatrixView<const float> y, MatrixView<float> x) const {
  context_.for_each_row(x.rows(), [&](std::int64_t row) {
    context_.compute.vector->add_scaled(y.row(row).data(), context_.config.residual_multiplier,
                                        x.cols(), x.row(row).data());
  });
}

void DecoderLayer::forward(const Batch& batch, MatrixView<float> x) {
  context_.normed.reserve(x.rows() * x.cols());
  context_.layer_out.reserve(x.rows() * x.cols());
  const MatrixView<float> normed = context_.normed.matrix(x.rows(), x.cols());
  const MatrixView<float> y = context_.layer_out.matrix(x.rows(), x.cols());
  {
    const PhaseScope scope(context_.times, Phase::attention);
    norm(x, parts_.weights.input_norm, normed);
    parts_.mixer.forward({parts_.index, parts_.weights.mixer}, batch, {.x = normed, .y = y});
    add_residual(y, x);
    norm(x, parts_.weights.post_attention_norm, normed);
  }
  parts_.feed_forward->forward({.x = normed, .y = y});
  add_residual(y, x);
}

}  // namespace moesaic
