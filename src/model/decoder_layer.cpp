#include "src/model/decoder_layer.h"

#include <cstring>

namespace moesaic {
namespace {

void copy(MatrixView<const float> from, Buffer<float>& to) {
  to.reserve(from.rows() * from.cols());
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    std::memcpy(to.data() + row * from.cols(), from.row(row).data(), from.row(row).size_bytes());
  }
}

}  // namespace

void DecoderLayer::norm(MatrixView<const float> x, std::span<const float> weight,
                        MatrixView<float> y) const {
  context_.for_each_row(x.rows(), [&](std::int64_t row) {
    context_.compute.vector->rms_norm(x.row(row).data(), weight.data(), context_.config.epsilon,
                                      x.cols(), y.row(row).data());
  });
}

void DecoderLayer::add_residual(std::span<const float> y, std::span<float> x) const {
  context_.compute.vector->add_scaled(y.data(), context_.config.residual_multiplier, std::ssize(x),
                                      x.data());
}

void DecoderLayer::run(const Batch& batch, MatrixView<float> x, KeptLayer* keep) {
  context_.moe.label.layer = static_cast<std::int32_t>(parts_.index);
  context_.normed.reserve(x.rows() * x.cols());
  context_.layer_out.reserve(x.rows() * x.cols());
  const MatrixView<float> normed = context_.normed.matrix(x.rows(), x.cols());
  const MatrixView<float> y = context_.layer_out.matrix(x.rows(), x.cols());
  {
    const PhaseScope scope(context_.times, Phase::attention);
    norm(x, parts_.weights.input_norm, normed);
    parts_.mixer.forward({parts_.index, parts_.weights.mixer}, batch,
                         {.x = normed, .y = y, .keep = keep ? keep->mixer.get() : nullptr});
    context_.for_each_row(x.rows(),
                          [&](std::int64_t row) { add_residual(y.row(row), x.row(row)); });
    if (keep != nullptr) copy(x, keep->middle);
    norm(x, parts_.weights.post_attention_norm, normed);
  }
  parts_.feed_forward->forward(
      {.x = normed, .y = y, .keep = keep ? keep->feed_forward.get() : nullptr});
  context_.for_each_row(x.rows(), [&](std::int64_t row) {
    add_residual(y.row(row), x.row(row));
    if (keep == nullptr) context_.finite_rows.look(row, parts_.index, x.row(row));
  });
}

void DecoderLayer::make_stashes(KeptLayer& keep) const {
  if (keep.mixer != nullptr) return;
  keep.mixer = parts_.mixer.make_stash();
  keep.feed_forward = parts_.feed_forward->make_stash();
}

void DecoderLayer::forward_kept(const Batch& batch, MatrixView<float> x, Recompute recompute,
                                KeptLayer& keep) {
  copy(x, keep.input);
  keep.is_whole = recompute == Recompute::never;
  if (!keep.is_whole) return forward(batch, x);
  make_stashes(keep);
  run(batch, x, &keep);
}

MatrixView<const float> DecoderLayer::part_gradient(MatrixView<const float> dx) {
  context_.part_gradient.reserve(dx.rows() * dx.cols());
  const MatrixView<float> dy = context_.part_gradient.matrix(dx.rows(), dx.cols());
  context_.for_each_row(dx.rows(), [&](std::int64_t row) {
    const std::span<const float> from = dx.row(row);
    const std::span<float> to = dy.row(row);
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = from[i] * context_.config.residual_multiplier;
    }
  });
  return dy;
}

void DecoderLayer::add_norm_gradient(MatrixView<const float> x, std::span<const float> weight,
                                     MatrixView<float> dx) {
  const MatrixView<float> gradient = context_.normed_gradient.matrix(x.rows(), x.cols());
  context_.for_each_row(x.rows(), [&](std::int64_t row) {
    float* const its = gradient.row(row).data();
    context_.compute.vector->rms_norm_gradient({.x = x.row(row).data(),
                                                .weight = weight.data(),
                                                .epsilon = context_.config.epsilon,
                                                .n = x.cols()},
                                               its, its);
    context_.compute.vector->add(its, x.cols(), dx.row(row).data());
  });
}

void DecoderLayer::backward(const Backward& pass, KeptLayer& kept) {
  const std::int64_t rows = pass.dx.rows();
  const std::int64_t hidden = pass.dx.cols();
  if (!kept.is_whole) {
    make_stashes(kept);
    copy(kept.input.matrix(rows, hidden), context_.residual_again);
    run(pass.batch, context_.residual_again.matrix(rows, hidden), &kept);
  }
  context_.moe.label.layer = static_cast<std::int32_t>(parts_.index);
  context_.normed.reserve(rows * hidden);
  context_.normed_gradient.reserve(rows * hidden);
  const MatrixView<float> normed = context_.normed.matrix(rows, hidden);
  const auto part = [&] {
    return PartBackward{.x = normed,
                        .dy = part_gradient(pass.dx),
                        .dx = context_.normed_gradient.matrix(rows, hidden),
                        .samples = pass.samples,
                        .adapters = pass.adapters};
  };
  const MatrixView<const float> middle = kept.middle.matrix(rows, hidden);
  norm(middle, parts_.weights.post_attention_norm, normed);
  parts_.feed_forward->backward(*kept.feed_forward, part());
  add_norm_gradient(middle, parts_.weights.post_attention_norm, pass.dx);

  const PhaseScope scope(context_.times, Phase::attention);
  const MatrixView<const float> input = kept.input.matrix(rows, hidden);
  norm(input, parts_.weights.input_norm, normed);
  parts_.mixer.backward({parts_.index, parts_.weights.mixer}, pass.batch, *kept.mixer, part());
  add_norm_gradient(input, parts_.weights.input_norm, pass.dx);
  kept.is_whole = false;
}

}  // namespace moesaic
