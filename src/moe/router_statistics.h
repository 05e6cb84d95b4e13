#pragma once

#include <cstdint>
#include <vector>

namespace moesaic {

/// What routers chose for some tokens. Sums are exact, so that they do not depend on the order in
/// which tokens, layers and ranks are added.
struct RouterStatistics {
  static constexpr double kUnit = 0x1p-40;

  std::vector<std::int64_t> chosen;  // [experts] how many tokens chose it
  /// [experts] in kUnit: sum of the softmax over all logits, or of sigmoids divided by their sum.
  std::vector<std::int64_t> probability;

  void resize(std::int64_t experts) {
    chosen.resize(static_cast<std::size_t>(experts));
    probability.resize(static_cast<std::size_t>(experts));
  }
  void add(const RouterStatistics& other);
};

/// The loss that balances experts, as transformers' load_balancing_loss_func has it for routers of
/// softmaxes without a bias of the choice, and DeepSeek-V3's paper for sigmoids; of the summed
/// statistics of all layers: experts * sum over experts of (its choices a token) * (its mean
/// probability). `tokens`: those of each layer, added. 0 without tokens.
[[nodiscard]] double balance_loss(const RouterStatistics& sums, std::int64_t tokens);

}  // namespace moesaic
