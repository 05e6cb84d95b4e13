#include "src/generate/logit_adjustment.h"

#include <algorithm>

namespace moesaic {

LogitAdjustment::LogitAdjustment(const SamplingOptions& options)
    : bias_(options.logit_bias),
      penalizes_(options.penalizes()),
      repetition_(static_cast<float>(options.repetition_penalty)),
      frequency_(static_cast<float>(options.frequency_penalty)),
      presence_(static_cast<float>(options.presence_penalty)),
      last_n_(options.penalty_last_n) {}

std::span<const float> LogitAdjustment::apply(std::span<const float> logits,
                                              const TextSoFar& text) {
  if (bias_.empty() && !penalizes_) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : bias_) adjusted_[static_cast<std::size_t>(token)] += bias;
  if (penalizes_) {
    follow(text);
    for (const auto& [token, counts] : counts_) {
      float& logit = adjusted_[static_cast<std::size_t>(token)];
      logit = penalized(logit, counts);
    }
  }
  return adjusted_;
}

float LogitAdjustment::penalized(float logit, const Counts& counts) const {
  logit = logit < 0 ? logit * repetition_ : logit / repetition_;
  if (counts.generated == 0) return logit;
  logit -= frequency_ * static_cast<float>(counts.generated);
  return logit - presence_;
}

void LogitAdjustment::follow(const TextSoFar& text) {
  const std::int64_t length = std::ssize(text.tokens);
  const std::int64_t first = last_n_ < 0 ? 0 : std::max<std::int64_t>(length - last_n_, 0);
  if (end_ == 0) begin_ = end_ = first;
  for (; end_ < length; ++end_) count(text, end_, 1);
  for (; begin_ < first; ++begin_) count(text, begin_, -1);
}

void LogitAdjustment::count(const TextSoFar& text, std::int64_t position, std::int32_t change) {
  const std::int32_t token = text.tokens[static_cast<std::size_t>(position)];
  Counts& counts = counts_[token];
  counts.all += change;
  if (position >= text.prompt_tokens) counts.generated += change;
  if (counts.all == 0) counts_.erase(token);
}

}  // namespace moesaic
