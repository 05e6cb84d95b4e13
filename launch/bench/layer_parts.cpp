#include "launch/bench/layer_parts.h"

#include <algorithm>

namespace moesaic {

LayerParts::LayerParts(const LayerCopies& layer, std::int64_t most_rows, const Compute& compute)
    : shape_(layer.shape()),
      compute_(compute),
      gemm_(compute),
      hidden_rows_(layer.element(), most_rows, shape_.hidden),
      inner_rows_(layer.element(), most_rows, shape_.intermediate),
      out_(most_rows * std::max(shape_.hidden, shape_.intermediate)) {}

void LayerParts::run(LayerCopies::Copy& copy, MatrixView<const float> x,
                     std::span<const std::int64_t> rows) {
  copy.router.route(x, gemm_, router_scratch_, routing_);
  for (std::size_t slot = 0; slot < rows.size(); ++slot) {
    if (rows[slot] == 0) continue;
    const MlpWeights& expert = copy.experts[slot].weights;
    multiply(expert.gate, hidden_rows_, rows[slot]);
    multiply(expert.up, hidden_rows_, rows[slot]);
    multiply(expert.down, inner_rows_, rows[slot]);
  }
  combine(x.rows());
}

void LayerParts::multiply(const PackedMatrix& weights, const SampleRows& input, std::int64_t rows) {
  const GemmGroup group{.num_rows = rows, .weights = weights};
  gemm_.run(input.source(rows), {&group, 1},
            {.data = reinterpret_cast<std::byte*>(out_.data()), .stride_bytes = weights.rows * 4});
}

void LayerParts::combine(std::int64_t tokens) {
  const std::int64_t hidden = shape_.hidden;
  results_.reserve(tokens * shape_.topk * hidden);
  sums_.reserve(tokens * hidden);
  compute_.pool->for_each_row(tokens, [&](std::int64_t token) {
    float* const sum = sums_.data() + token * hidden;
    std::fill_n(sum, hidden, 0.0F);
    for (std::int64_t choice = token * shape_.topk; choice < (token + 1) * shape_.topk; ++choice) {
      compute_.vector->add_scaled(results_.data() + choice * hidden, 0.5F, hidden, sum);
    }
  });
}

}  // namespace moesaic
