#include "src/model/decoder_layer.h"

#include <cstring>

namespace moesaic {
void DecoderLayer::copy(MatrixView<const float> from, Buffer<float>& to) const {
  to.reserve(from.rows() * from.cols());
  context_.for_each_row(from.rows(), [&](std::int64_t row) {
    std::memcpy(to.data() + row * from.cols(), from.row(row).data(), from.row(row).size_bytes());
  });
}

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

MatrixView<float> DecoderLayer::rows_of(const Pass& pass, const Buffer<float>& all) {
  return {all.data() + pass.first_row * pass.x.cols(), pass.x.rows(), pass.x.cols()};
}

PartForward DecoderLayer::feed_forward_part(const Pass& pass) const {
  return {.x = rows_of(pass, context_.normed),
          .y = pass.keeps_alone ? MatrixView<float>{} : rows_of(pass, context_.layer_out),
          .keep = pass.keep != nullptr ? pass.keep->feed_forward.get() : nullptr,
          .half = pass.half,
          .defer = parts_.defer};
}

void DecoderLayer::begin(const Pass& pass) {
  context_.enter_layer(parts_.index, "attention", pass.half);
  const MatrixView<float>& x = pass.x;
  const std::int64_t rows = pass.first_row + x.rows();
  context_.normed.reserve(rows * x.cols());
  context_.layer_out.reserve(rows * x.cols());
  const MatrixView<float> normed = rows_of(pass, context_.normed);
  {
    const PhaseScope scope(context_.times, Phase::attention);
    norm(x, parts_.weights.input_norm, normed);
    const MatrixView<float> y = rows_of(pass, context_.layer_out);
    parts_.mixers[pass.half]->forward(
        {parts_.index, parts_.weights.mixer}, pass.batch,
        {.x = normed, .y = y, .keep = pass.keep != nullptr ? pass.keep->mixer.get() : nullptr});
    context_.for_each_row(x.rows(),
                          [&](std::int64_t row) { add_residual(y.row(row), x.row(row)); });
    if (pass.keep != nullptr) copy(x, pass.keep->middle);
    norm(x, parts_.weights.post_attention_norm, normed);
  }
  parts_.feed_forward->begin(feed_forward_part(pass));
}

void DecoderLayer::execute(const Pass& pass) {
  parts_.feed_forward->execute(feed_forward_part(pass));
}

void DecoderLayer::end(const Pass& pass) {
  const PartForward part = feed_forward_part(pass);
  parts_.feed_forward->end(part);
  if (pass.keeps_alone) return;
  context_.for_each_row(pass.x.rows(), [&](std::int64_t row) {
    add_residual(part.y.row(row), pass.x.row(row));
    if (pass.keep != nullptr) return;
    context_.finite_rows.look(pass.first_row + row, parts_.index, pass.x.row(row));
  });
}

void DecoderLayer::make_stashes(KeptLayer& keep) const {
  if (keep.mixer != nullptr) return;
  keep.mixer = parts_.mixers.front()->make_stash();
  keep.feed_forward = parts_.feed_forward->make_stash();
}

void DecoderLayer::forward_kept(const Batch& batch, MatrixView<float> x, Recompute recompute,
                                KeptLayer& keep) {
  copy(x, keep.input);
  keep.is_whole = recompute == Recompute::never;
  if (!keep.is_whole) return forward({.batch = batch, .x = x});
  make_stashes(keep);
  forward({.batch = batch, .x = x, .keep = &keep});
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
  context_.enter_layer(parts_.index, "backward");
  if (!kept.is_whole) {
    make_stashes(kept);
    copy(kept.input.matrix(rows, hidden), context_.residual_again);
    for (const BatchSequence& sequence : pass.batch.sequences) {
      sequence.sequence->clear_state(parts_.index);
    }
    forward({.batch = pass.batch,
             .x = context_.residual_again.matrix(rows, hidden),
             .keep = &kept,
             .keeps_alone = true});
  }
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
  parts_.mixers.front()->backward({parts_.index, parts_.weights.mixer}, pass.batch, *kept.mixer,
                                  part());
  add_norm_gradient(input, parts_.weights.input_norm, pass.dx);
  kept.is_whole = false;
}

}  // namespace moesaic
