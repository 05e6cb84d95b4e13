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

/// Groups of experts at most, of which the best may be chosen from.
inline constexpr std::int64_t kMostGroups = 64;

/// What becomes of the logits before the k largest are taken.
enum class ExpertScores {
  softmax,  ///< over all experts
  logits,   ///< nothing: the weights are a softmax over the chosen ones (GraniteMoE)
  sigmoid   ///< of each by itself (DeepSeek-V3)
};

/// What a group of experts counts for: of what its experts would be chosen by.
enum class GroupScore { two_largest, largest };

/// How a family turns router logits into choices and weights.
struct RouterOptions {
  std::int64_t topk = 0;
  ExpertScores scores = ExpertScores::softmax;
  /// The weights are the chosen scores, divided by their sum, which is made larger by `sum_offset`
  /// and at least `least_sum`. Not of logits.
  bool normalize = false;
  float sum_offset = 0;
  float least_sum = 0;
  float scale = 1;  ///< what weights are multiplied by at last
  /// Experts are in so many groups, runs of equal length, of which the best alone are chosen from.
  std::int64_t num_groups = 1;
  std::int64_t kept_groups = 1;
  GroupScore group_score = GroupScore::two_largest;

  /// Whether weights hang on what passing back cannot find in them: the scores.
  [[nodiscard]] bool needs_scores_to_pass_back() const noexcept {
    return scores == ExpertScores::sigmoid || (scores == ExpertScores::softmax && !normalize);
  }
};

/// Scratch memory of Router::route, shared by the layers of a model.
struct RouterScratch {
  Buffer<float> scores;  // [tokens, experts]
  MatrixRows rows;
};

/// A backward pass through a router.
struct RouterBackward {
  const Routing& routing;                   // of the forward pass
  MatrixView<const float> scores;           // [tokens, experts], if needs_scores()
  std::span<const float> weight_gradients;  // [tokens * topk]
  MatrixView<float> dx;                     // [tokens, hidden], added to
};

/// What a router adds, each [experts] or none.
struct RouterBiases {
  std::span<const float> logits{};  ///< to the logits
  std::span<const float> choice{};  ///< to the scores that choices are made by, and to no weight
};

/// In f32; ties go to the lower expert id, and to the lower group.
class Router {
 public:
  /// `weights` [experts, hidden] in format f32, with the owner's lifetime, as what is in `biases`.
  Router(const PackedMatrix& weights, const RouterOptions& options, const Compute& compute,
         const RouterBiases& biases = {});

  /// `x` [tokens, hidden]. `routing` is overwritten. `given`: the choices [tokens * topk], whose
  /// weights alone follow from x; nothing: those of the largest scores.
  void route(MatrixView<const float> x, GroupedGemm& gemm, RouterScratch& scratch, Routing& routing,
             std::span<const ExpertId> given = {}) const;

  /// The gradient of x by way of the weights; choices have none. In f32.
  void pass_back(const RouterBackward& pass, TransposedGemm& transposed,
                 RouterScratch& scratch) const;
  /// Whether pass_back() needs the scores of all experts, which route() leaves in the scratch.
  [[nodiscard]] bool needs_scores() const noexcept { return options_.needs_scores_to_pass_back(); }
  /// Adds what route() has just done; uses up its scores.
  void add_statistics(const Routing& routing, RouterScratch& scratch,
                      RouterStatistics& statistics) const;

  [[nodiscard]] std::int64_t num_experts() const noexcept { return weights_.rows; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return weights_.depth; }

 private:
  PackedMatrix weights_;
  RouterBiases biases_;
  RouterOptions options_;
  Compute compute_;
};

/// One token of a router.
struct TokenChoice {
  std::span<float> scores;               // [experts] logits in, scores out
  std::span<const float> choice_bias{};  // [experts] or none
  std::span<const ExpertId> given{};     // [topk] the choice, or none
  std::span<ExpertId> experts;           // [topk] written, ascending
  std::span<float> weights;              // [topk] written, in the order of the experts
};
void choose_experts(const TokenChoice& token, const RouterOptions& options,
                    const VectorKernels& vector);

}  // namespace moesaic
