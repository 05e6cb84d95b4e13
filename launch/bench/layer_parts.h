#pragma once

#include <cstdint>
#include <span>

#include "launch/bench/sample_rows.h"
#include "launch/shapes/layer_copies.h"

namespace moesaic {

/// The parts of a layer run one after the other, without the layer around them: what they take is
/// what the layer takes if it loses nothing between them.
class LayerParts {
 public:
  /// Products of up to `most_rows` rows. `layer` and what `compute` points to outlive this.
  LayerParts(const LayerCopies& layer, std::int64_t most_rows, const Compute& compute);

  /// Runs the router for tokens `x` [tokens, hidden], gate, up and down of each expert with its
  /// `rows` [local experts], and the weighted sums of as many results as the tokens have.
  void run(LayerCopies::Copy& copy, MatrixView<const float> x, std::span<const std::int64_t> rows);

 private:
  void multiply(const PackedMatrix& weights, const SampleRows& input, std::int64_t rows);
  void combine(std::int64_t tokens);

  LayerShape shape_;
  Compute compute_;
  GroupedGemm gemm_;
  SampleRows hidden_rows_;
  SampleRows inner_rows_;
  RouterScratch router_scratch_;
  Routing routing_;
  Buffer<float> out_;      // of one product
  Buffer<float> results_;  // [tokens * topk, hidden]
  Buffer<float> sums_;     // [tokens, hidden]
};

}  // namespace moesaic
