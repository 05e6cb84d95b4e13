#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "src/parallel/expert_loads.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

/// The experts that a step's tokens choose in one layer: those that tokens of a text chose, where
/// they are known, else drawn as experts are popular. Of a step with few tokens there are several
/// such samples; one with more than kMostTokens, or than the text has, behaves as these do, in
/// proportion. Deterministic.
class StepChoices {
 public:
  static constexpr std::int64_t kMostTokens = 4096;

  /// `layer`: among those with experts.
  StepChoices(const ExpertQuestion& question, const CostRanks& ranks,
              const ExpertPopularity& popularity, std::int64_t layer);

  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// Of its texts, the one that `token` is of.
  [[nodiscard]] std::int64_t text_of(std::int64_t token) const { return token * texts_ / tokens_; }
  /// Valid until the next call.
  [[nodiscard]] std::span<const ExpertId> experts_of(std::int64_t sample, std::int64_t token);

 private:
  [[nodiscard]] std::int64_t position_of(std::int64_t sample, std::int64_t token) const;

  std::int64_t topk_;
  std::span<const ExpertId> known_;  // [positions * topk]; none: drawn
  std::int64_t tokens_;
  std::int64_t texts_;
  std::int64_t gap_ = 0;     // positions between one text of the step and the next
  std::int64_t stride_ = 0;  // from a text in one sample to that in the next
  std::int64_t samples_ = 1;
  CounterRandom random_;
  std::optional<ExpertDraw> draw_;
};

}  // namespace moesaic
