#include <algorithm>
#include <cmath>

#include "src/moe/router.h"

namespace moesaic {
namespace {

/// Gradients of a token's weights to those of its logits [experts], which are zero at first.
/// Weights that are a softmax over the chosen logits, as those divided by their sum are, depend on
/// these alone.
void pass_back_chosen(std::span<const ExpertId> experts, std::span<const float> weights,
                      std::span<const float> gradients, std::span<float> logits) {
  float mean = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) mean = std::fma(weights[k], gradients[k], mean);
  for (std::size_t k = 0; k < weights.size(); ++k) {
    logits[static_cast<std::size_t>(experts[k])] = weights[k] * (gradients[k] - mean);
  }
}

/// The same for weights out of a softmax over all logits.
void pass_back_all(std::span<const ExpertId> experts, std::span<const float> probabilities,
                   std::span<const float> gradients, std::span<float> logits) {
  float mean = 0;
  for (std::size_t k = 0; k < experts.size(); ++k) {
    const auto expert = static_cast<std::size_t>(experts[k]);
    logits[expert] = gradients[k];
    mean = std::fma(probabilities[expert], gradients[k], mean);
  }
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    logits[expert] = probabilities[expert] * (logits[expert] - mean);
  }
}

}  // namespace

void Router::pass_back(const RouterBackward& pass, TransposedGemm& transposed,
                       RouterScratch& scratch) const {
  const Routing& routing = pass.routing;
  const std::int64_t tokens = routing.num_tokens;
  const std::int64_t experts = num_experts();
  scratch.scores.reserve(tokens * experts);
  const MatrixView<float> logits = scratch.scores.matrix(tokens, experts);
  compute_.pool->for_each_row(tokens, [&](std::int64_t t) {
    const auto first = static_cast<std::size_t>(t * routing.topk);
    const auto count = static_cast<std::size_t>(routing.topk);
    const std::span<const float> gradients = pass.weight_gradients.subspan(first, count);
    std::ranges::fill(logits.row(t), 0.0F);
    if (needs_probabilities()) {
      pass_back_all(routing.experts_of(t), pass.probabilities.row(t), gradients, logits.row(t));
    } else {
      pass_back_chosen(routing.experts_of(t), std::span(routing.weights).subspan(first, count),
                       gradients, logits.row(t));
    }
  });
  const GemmGroup group{.num_rows = tokens, .weights = weights_, .epilogue = {.addend = pass.dx}};
  transposed.run(scratch.rows.of(logits), {&group, 1}, output_of(pass.dx));
}

void Router::add_statistics(const Routing& routing, RouterScratch& scratch,
                            RouterStatistics& statistics) const {
  const std::int64_t experts = num_experts();
  statistics.resize(experts);
  for (const ExpertId expert : routing.experts) {
    ++statistics.chosen[static_cast<std::size_t>(expert)];
  }
  const MatrixView<float> scores = scratch.scores.matrix(routing.num_tokens, experts);
  if (!options_.softmax_over_all) {  // logits
    compute_.pool->for_each_row(scores.rows(), [&](std::int64_t t) {
      compute_.vector->softmax(scores.row(t).data(), experts);
    });
  }
  for (std::int64_t t = 0; t < scores.rows(); ++t) {
    const std::span<const float> row = scores.row(t);
    for (std::size_t expert = 0; expert < row.size(); ++expert) {
      if (std::isnan(row[expert])) continue;  // of a token whose loss will tell
      const double units = static_cast<double>(row[expert]) / RouterStatistics::kUnit;
      statistics.probability[expert] += static_cast<std::int64_t>(units + 0.5);
    }
  }
}

}  // namespace moesaic
