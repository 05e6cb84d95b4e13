#include "src/parallel/step_choices.h"

#include <algorithm>

namespace moesaic {
namespace {

constexpr std::uint64_t kSeed = 6;
constexpr std::int64_t kMostSamples = 16;

std::int64_t samples_of(std::int64_t all, std::int64_t each) {
  return std::clamp<std::int64_t>(all / each, 1, kMostSamples);
}

}  // namespace

StepChoices::StepChoices(const ExpertQuestion& question, const CostRanks& ranks,
                         const ExpertPopularity& popularity, std::int64_t layer)
    : topk_(question.topk),
      known_(popularity.choices(layer)),
      tokens_(std::min(question.tokens, kMostTokens)),
      random_(CounterRandom(kSeed).at(static_cast<std::uint64_t>(layer))) {
  const std::int64_t positions = std::ssize(known_) / topk_;
  if (!known_.empty()) tokens_ = std::min(tokens_, positions);
  texts_ = std::min(question.texts == 0 ? ranks.sharers() : question.texts, tokens_);
  if (known_.empty()) {
    draw_.emplace(popularity.rates(layer, question.experts), topk_);
    samples_ = samples_of(kMostTokens, question.tokens);
    return;
  }
  // Texts of the step begin in places that are spread over the one that is known; each sample goes
  // on from there.
  gap_ = (positions - tokens_) / texts_;
  const std::int64_t length = tokens_ / texts_;
  samples_ = samples_of(gap_ + length, length);
  stride_ = (gap_ + length) / samples_;
}

std::int64_t StepChoices::position_of(std::int64_t sample, std::int64_t token) const {
  return token + text_of(token) * gap_ + sample * stride_;
}

std::span<const ExpertId> StepChoices::experts_of(std::int64_t sample, std::int64_t token) {
  if (draw_) {
    return draw_->next(
        random_.at(static_cast<std::uint64_t>(sample)).at(static_cast<std::uint64_t>(token)));
  }
  return known_.subspan(static_cast<std::size_t>(position_of(sample, token) * topk_),
                        static_cast<std::size_t>(topk_));
}

}  // namespace moesaic
