#include "src/train/sample_pass.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace moesaic {

SamplePass::SamplePass(Transformer& transformer, Recompute recompute)
    : transformer_(transformer),
      recompute_(recompute),
      pool_(transformer.config(), transformer.precision()) {}

void SamplePass::find_targets(std::span<const TrainSample> samples, MicroBatch& batch) {
  targets_.tokens.clear();
  targets_.ends.clear();
  std::int64_t first_row = 0;
  for (const TrainSample& sample : samples) {
    for (std::size_t i = 1; i < sample.labels.size(); ++i) {
      if (sample.labels[i] == kNotTrained) continue;
      batch.trained_rows.push_back(first_row + static_cast<std::int64_t>(i) - 1);
      targets_.tokens.push_back(sample.labels[i]);
    }
    targets_.ends.push_back(std::ssize(targets_.tokens));
    first_row += std::ssize(sample.tokens);
  }
  batch.trained_tokens = std::ssize(targets_.tokens);
}

void SamplePass::add_losses(MicroBatch& batch) const {
  std::int64_t at = 0;
  for (const std::int64_t end : targets_.ends) {
    double sum = 0;
    for (; at < end; ++at) sum += static_cast<double>(losses_[static_cast<std::size_t>(at)]);
    batch.losses.push_back(sum);
  }
}

void SamplePass::set_dropout(std::span<const TrainSample> samples, const Dropout& dropout,
                             KeptPass& kept) {
  kept.dropout = dropout.share;
  kept.row_keys.clear();
  if (!dropout.is_on()) return;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::int64_t token = 0; token < std::ssize(samples[i].tokens); ++token) {
      kept.row_keys.push_back(dropout_row_key(dropout.keys[i], token));
    }
  }
}

MicroBatch SamplePass::run(std::span<const TrainSample> samples, const Conditions& conditions) {
  const bool keeps = conditions.keeps;
  MicroBatch batch;
  if (!spare_.empty()) {
    batch.kept = std::move(spare_.back());
    spare_.pop_back();
  }
  set_dropout(samples, conditions.dropout, batch.kept);
  batch.kept.choices = conditions.choices;
  find_targets(samples, batch);
  std::vector<SequenceChunk> chunks;
  batch.sequences.reserve(samples.size());
  for (const TrainSample& sample : samples) {
    batch.sequences.push_back(pool_.make_sequence(std::ssize(sample.tokens)));
    chunks.push_back({&batch.sequences.back(), sample.tokens, SequenceChunk::Logits::none});
  }
  const std::int64_t rows_before = transformer_.load().rows;
  transformer_.forward_kept(chunks, keeps ? recompute_ : Recompute::always, batch.kept);
  batch.expert_rows = transformer_.load().rows - rows_before;
  batch.rows = batch.kept.batch.rows();
  batch.routers = std::move(batch.kept.routers);

  const std::int64_t hidden = transformer_.config().hidden_size;
  const std::int64_t count = batch.trained_tokens;
  losses_.resize(static_cast<std::size_t>(count));
  if (keeps) batch.gradients.reserve(count * hidden);
  transformer_.loss_head().run({.x = batch.kept.out.matrix(batch.kept.batch.rows(), hidden),
                                .rows = batch.trained_rows,
                                .targets = targets_.tokens},
                               losses_,
                               keeps ? batch.gradients.matrix(count, hidden) : MatrixView<float>());
  add_losses(batch);
  return batch;
}

MicroBatch SamplePass::forward(std::span<const TrainSample> samples, const Dropout& dropout,
                               ChosenExperts* choices) {
  return run(samples, {.keeps = true, .dropout = dropout, .choices = choices});
}

MicroBatch SamplePass::evaluate(std::span<const TrainSample> samples) {
  MicroBatch batch = run(samples, {});
  spare_.push_back(std::exchange(batch.kept, {}));
  batch.sequences.clear();
  return batch;
}

void SamplePass::backward(MicroBatch batch, AdapterGradients& gradients,
                          const Transformer::LayerDone& layer_done) {
  const std::int64_t hidden = transformer_.config().hidden_size;
  const std::int64_t rows = batch.kept.batch.rows();
  row_gradients_.reserve(rows * hidden);
  std::fill_n(row_gradients_.data(), rows * hidden, 0.0F);
  for (std::size_t i = 0; i < batch.trained_rows.size(); ++i) {
    std::memcpy(row_gradients_.data() + batch.trained_rows[i] * hidden,
                batch.gradients.data() + static_cast<std::int64_t>(i) * hidden,
                static_cast<std::size_t>(hidden) * 4);
  }
  transformer_.backward(batch.kept, row_gradients_.matrix(rows, hidden), gradients, layer_done);
  spare_.push_back(std::move(batch.kept));
}

}  // namespace moesaic
