#include "launch/layer_parts.h"

#include <algorithm>

#include "launch/bench_timing.h"

namespace moesaic {

LayerParts::LayerParts(LayerCopies& layer, std::int64_t most_rows, const Compute& compute,
                       double seconds)
    : layer_(&layer),
      compute_(compute),
      seconds_(seconds),
      gemm_(compute),
      hidden_rows_(layer.element(), most_rows, layer.shape().hidden),
      inner_rows_(layer.element(), most_rows, layer.shape().intermediate) {
  for (const LayerCopies::Copy& copy : layer.copies()) {
    for (const ExpertWeights& expert : copy.experts) experts_.push_back(&expert);
  }
  rotation_ = Rotation(experts_.size());
}

double LayerParts::product(PackedMatrix ExpertWeights::*which, const SampleRows& input,
                           std::int64_t rows) {
  const std::int64_t columns = (experts_.front()->*which).rows;
  out_.reserve(rows * columns);
  const GemmOutput output{.data = reinterpret_cast<std::byte*>(out_.data()),
                          .stride_bytes = columns * 4};
  return lower_quartile(repeat(seconds_, [&] {
    const GemmGroup group{.num_rows = rows, .weights = experts_[rotation_.next()]->*which};
    return time_once([&] { gemm_.run(input.source(rows), {&group, 1}, output); });
  }));
}

double LayerParts::expert(std::int64_t rows) {
  const auto [entry, is_new] = expert_seconds_.try_emplace(rows);
  if (is_new) {
    entry->second = product(&ExpertWeights::gate, hidden_rows_, rows) +
                    product(&ExpertWeights::up, hidden_rows_, rows) +
                    product(&ExpertWeights::down, inner_rows_, rows);
  }
  return entry->second;
}

double LayerParts::router(MatrixView<const float> x) {
  Routing routing;
  std::size_t copy = 0;
  return lower_quartile(repeat(seconds_, [&] {
    copy = (copy + 1) % layer_->copies().size();
    return time_once([&] { layer_->copies()[copy].router.route(x, gemm_, routing); });
  }));
}

double LayerParts::combine(std::int64_t tokens) {
  const std::int64_t hidden = layer_->shape().hidden;
  const std::int64_t topk = layer_->shape().topk;
  const Buffer<float> results(tokens * topk * hidden);
  const Buffer<float> sums(tokens * hidden);
  return lower_quartile(repeat(seconds_, [&] {
    return time_once([&] {
      compute_.pool->for_each(tokens, 8, [&](std::int64_t token) {
        float* const sum = sums.data() + token * hidden;
        std::fill_n(sum, hidden, 0.0F);
        for (std::int64_t choice = token * topk; choice < (token + 1) * topk; ++choice) {
          compute_.vector->add_scaled(results.data() + choice * hidden, 0.5F, hidden, sum);
        }
      });
    });
  }));
}

}  // namespace moesaic
