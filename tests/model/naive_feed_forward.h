#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "src/model/feed_forward.h"
#include "tests/lora/naive_mlp.h"

// Feed-forward parts as anyone would write them, in double precision.

namespace moesaic::naive {

/// A layer with experts, some without adapters and one that nobody chooses, perhaps with a shared
/// one; or, where a token has no expert, the MLP alone that is the shared one elsewhere.
struct FeedForwardLayer {
  static constexpr std::int64_t kHidden = 20;
  static constexpr std::int64_t kTokens = 30;
  static constexpr std::int64_t kSharedWidth = 10;

  explicit FeedForwardLayer(const MoeConfig& of) : config(of) {
    config.hidden = kHidden;
    config.experts = is_plain() ? 0 : 6;
    config.expert_width = 12;
    router = random_matrix(config.experts, kHidden, 0.4F, random);
    for (const std::int64_t rank : {2, 3, 0, 2, 2, 2}) {
      if (!is_plain()) experts.push_back(random_mlp({kHidden, 12, rank}, random));
    }
    shared = random_mlp({kHidden, kSharedWidth, 2}, random);
    shared_gate = random_matrix(1, kHidden, 0.3F, random);
    if (config.choice_bias) choice_bias = {0.2F, 0, 0.4F, 0.1F, 0.05F, 0.3F};
    if (config.router_bias) router_bias = random_matrix(1, 6, 0.5F, random).floats();
    if (config.expert_bias) {
      for (Mlp& expert : experts) add_biases(expert, random);
      config.gating = experts.front().gating;
    }
    x = random_matrix(kTokens, kHidden, 1, random);
    dy = random_matrix(kTokens, kHidden, 1, random);
    for (std::int64_t t = 0; t < kTokens; ++t) {  // expert 4's logit is the lowest
      x.row(t)[0] = 10;
      for (std::int64_t e = 0; e < config.experts; ++e) router.row(e)[0] = e == 4 ? -3.0 : 0.0;
    }
  }

  [[nodiscard]] bool is_plain() const { return config.router.topk == 0; }
  [[nodiscard]] std::unique_ptr<FeedForwardKind> kind() const {
    if (is_plain()) return std::make_unique<PlainMlpKind>(kHidden, kSharedWidth);
    return std::make_unique<MoeKind>(config);
  }

  /// <dy, y> of a token.
  [[nodiscard]] double product(std::int64_t t) const {
    const std::vector<double> x_row(x.row(t), x.row(t) + kHidden);
    const std::vector<double> y = is_plain() ? shared(x_row) : result(x_row);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy.row(t)[i] * y[i];
    return sum;
  }
  /// Of experts, not divided by their sum.
  [[nodiscard]] std::vector<double> scores_of(const std::vector<double>& x_row) const {
    std::vector<double> scores = times(router, x_row);
    for (std::size_t e = 0; e < scores.size(); ++e) {
      const double logit = scores[e] + static_cast<double>(router_bias[e]);
      scores[e] = config.router.scores == ExpertScores::sigmoid ? sigmoid(logit) : std::exp(logit);
    }
    return scores;
  }
  /// Of a layer with experts.
  [[nodiscard]] std::vector<double> result(const std::vector<double>& x_row) const {
    std::vector<double> y(static_cast<std::size_t>(kHidden));
    const auto add = [&](const Mlp& mlp, double weight) {
      const std::vector<double> part = mlp(x_row);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += weight * part[i];
    };
    const std::vector<double> scores = scores_of(x_row);
    const RouterOptions& options = config.router;
    const double all = std::accumulate(scores.begin(), scores.end(), 0.0);
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, std::greater{},
                      [&](std::size_t e) { return scores[e] + choice_bias[e]; });
    order.resize(static_cast<std::size_t>(options.topk));
    double chosen = 0;
    for (const std::size_t e : order) chosen += scores[e];
    const bool normalizes = options.normalize || options.scores == ExpertScores::logits;
    const double sum = normalizes ? chosen : options.scores == ExpertScores::sigmoid ? 1 : all;
    for (const std::size_t e : order) add(experts[e], options.scale * scores[e] / sum);
    if (config.shared_width > 0) {
      add(shared, config.gates_shared ? sigmoid(times(shared_gate, x_row)[0]) : 1);
    }
    return y;
  }
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::int64_t t = 0; t < kTokens; ++t) sum += product(t);
    return sum;
  }

  MoeConfig config;
  std::mt19937 random{23};
  Matrix router, shared_gate, x, dy;
  std::vector<float> choice_bias = std::vector<float>(6);
  std::vector<float> router_bias = choice_bias;
  std::vector<Mlp> experts;
  Mlp shared;
};

}  // namespace moesaic::naive
