#include <algorithm>
#include <cmath>

#include "src/moe/router.h"

namespace moesaic {
namespace {

/// A token on its way back: gradients of its weights become those of its logits, which are zero at
/// first.
struct TokenBackward {
  std::span<const ExpertId> experts;  // [topk]
  std::span<const float> weights;     // [topk]
  std::span<const float> gradients;   // [topk]
  std::span<float> logits;            // [experts]
};

/// Weights that are a softmax over the chosen logits, as those divided by their sum are, depend on
/// these alone.
void pass_back_chosen(const TokenBackward& token, float scale) {
  float mean = 0;
  for (std::size_t k = 0; k < token.weights.size(); ++k) {
    mean = std::fma(token.weights[k], token.gradients[k], mean);
  }
  mean /= scale;
  for (std::size_t k = 0; k < token.weights.size(); ++k) {
    token.logits[static_cast<std::size_t>(token.experts[k])] =
        token.weights[k] * (token.gradients[k] - mean);
  }
}

/// The same for weights out of a softmax over all logits, whose `probabilities` [experts] are
/// these.
void pass_back_all(const TokenBackward& token, std::span<const float> probabilities, float scale) {
  float mean = 0;
  for (std::size_t k = 0; k < token.experts.size(); ++k) {
    const auto expert = static_cast<std::size_t>(token.experts[k]);
    token.logits[expert] = token.gradients[k] * scale;
    mean = std::fma(probabilities[expert], token.logits[expert], mean);
  }
  for (std::size_t expert = 0; expert < token.logits.size(); ++expert) {
    token.logits[expert] = probabilities[expert] * (token.logits[expert] - mean);
  }
}

/// The same for sigmoids s [experts]: a weight is scale s, or scale s / (sum of the chosen s).
void pass_back_sigmoids(const TokenBackward& token, std::span<const float> scores,
                        const RouterOptions& options) {
  float factor = options.scale;
  float mean = 0;
  if (options.normalize) {
    float sum = options.sum_offset;
    for (const ExpertId expert : token.experts) sum += scores[static_cast<std::size_t>(expert)];
    sum = std::max(sum, options.least_sum);
    for (std::size_t k = 0; k < token.experts.size(); ++k) {
      const float share = scores[static_cast<std::size_t>(token.experts[k])] / sum;
      mean = std::fma(share, token.gradients[k], mean);
    }
    factor /= sum;
  }
  for (std::size_t k = 0; k < token.experts.size(); ++k) {
    const auto expert = static_cast<std::size_t>(token.experts[k]);
    const float slope = scores[expert] * (1 - scores[expert]);
    token.logits[expert] = factor * (token.gradients[k] - mean) * slope;
  }
}

/// Scores become what the balance loss takes for probabilities: those of a softmax over all, or
/// sigmoids divided by their sum (DeepSeek-V3).
void make_probabilities(ExpertScores kind, const VectorKernels& vector, std::span<float> scores) {
  if (kind == ExpertScores::logits) {
    vector.softmax(scores.data(), static_cast<std::int64_t>(scores.size()));
  }
  if (kind != ExpertScores::sigmoid) return;
  float sum = 0;
  for (const float score : scores) sum += score;
  for (float& score : scores) score /= sum;
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
    std::ranges::fill(logits.row(t), 0.0F);
    const TokenBackward token{routing.experts_of(t),
                              std::span(routing.weights).subspan(first, count),
                              pass.weight_gradients.subspan(first, count), logits.row(t)};
    if (options_.scores == ExpertScores::sigmoid) {
      pass_back_sigmoids(token, pass.scores.row(t), options_);
    } else if (needs_scores()) {
      pass_back_all(token, pass.scores.row(t), options_.scale);
    } else {
      pass_back_chosen(token, options_.scale);
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
  compute_.pool->for_each_row(scores.rows(), [&](std::int64_t t) {
    make_probabilities(options_.scores, *compute_.vector, scores.row(t));
  });
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
