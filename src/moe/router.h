#pragma once

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"
#include "src/moe/routing.h"

namespace moesaic {

/// How a family turns router logits into choices and weights.
struct RouterOptions {
  std::int64_t topk = 0;
  /// Softmax over all experts and then the k largest; otherwise over the k largest logits
  /// (GraniteMoE).
  bool softmax_over_all = true;
  /// Divide the k probabilities by their sum (softmax_over_all only).
  bool normalize = false;
};

/// Scratch memory of Router::route, shared by the layers of a model.
struct RouterScratch {
  Buffer<float> scores;  // [tokens, experts]
  std::vector<const std::byte*> rows;
};

/// Scores in f32; ties go to the lower expert id.
class Router {
 public:
  /// `weights` [experts, hidden] in format f32, with the owner's lifetime.
  Router(const PackedMatrix& weights, const RouterOptions& options, const Compute& compute);

  /// `x` [tokens, hidden]. `routing` is overwritten.
  void route(MatrixView<const float> x, GroupedGemm& gemm, RouterScratch& scratch,
             Routing& routing) const;

  [[nodiscard]] std::int64_t num_experts() const noexcept { return weights_.rows; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return weights_.depth; }
  [[nodiscard]] std::int64_t topk() const noexcept { return options_.topk; }

 private:
  PackedMatrix weights_;
  RouterOptions options_;
  Compute compute_;
};

/// The choice for one token from its `scores` [experts], overwritten (logits in, probabilities
/// out): `experts` and `weights` [topk] in ascending expert id.
void choose_experts(std::span<float> scores, const RouterOptions& options,
                    const VectorKernels& vector, std::span<ExpertId> experts,
                    std::span<float> weights);

}  // namespace moesaic
