#pragma once

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"
#include "kernels/transposed_gemm.h"
#include "src/lora/matrix_rows.h"
#include "src/moe/router_statistics.h"
#include "src/moe/routing.h"

namespace moesaic {

/// Experts of a token at most.
inline constexpr std::int64_t kMostChosen = 64;

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
  MatrixRows rows;
};

/// A backward pass through a router.
struct RouterBackward {
  const Routing& routing;                   // of the forward pass
  MatrixView<const float> probabilities;    // [tokens, experts], if needs_probabilities()
  std::span<const float> weight_gradients;  // [tokens * topk]
  MatrixView<float> dx;                     // [tokens, hidden], added to
};

/// Scores in f32; ties go to the lower expert id.
class Router {
 public:
  /// `weights` [experts, hidden] in format f32, with the owner's lifetime.
  Router(const PackedMatrix& weights, const RouterOptions& options, const Compute& compute);

  /// `x` [tokens, hidden]. `routing` is overwritten. `given`: the choices [tokens * topk], whose
  /// weights alone follow from x; nothing: those of the largest scores.
  void route(MatrixView<const float> x, GroupedGemm& gemm, RouterScratch& scratch, Routing& routing,
             std::span<const ExpertId> given = {}) const;

  /// The gradient of x by way of the weights; choices have none. In f32.
  void pass_back(const RouterBackward& pass, TransposedGemm& transposed,
                 RouterScratch& scratch) const;
  /// Whether pass_back() needs the probabilities of all experts, which route() leaves in the
  /// scores.
  [[nodiscard]] bool needs_probabilities() const noexcept {
    return options_.softmax_over_all && !options_.normalize;
  }
  /// Adds what route() has just done; uses up its scores.
  void add_statistics(const Routing& routing, RouterScratch& scratch,
                      RouterStatistics& statistics) const;

  [[nodiscard]] std::int64_t num_experts() const noexcept { return weights_.rows; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return weights_.depth; }

 private:
  PackedMatrix weights_;
  RouterOptions options_;
  Compute compute_;
};

/// The choice for one token from its `scores` [experts], overwritten (logits in, probabilities
/// out): `experts` and `weights` [topk] in ascending expert id. `given`: the experts, or nothing.
void choose_experts(std::span<float> scores, const RouterOptions& options,
                    const VectorKernels& vector, std::span<ExpertId> experts,
                    std::span<float> weights, std::span<const ExpertId> given = {});

}  // namespace moesaic
