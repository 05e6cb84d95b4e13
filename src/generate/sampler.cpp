#include "src/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "src/generate/token_logprobs.h"

namespace moesaic {
namespace {

/// As in vLLM: logits divided by less would overflow.
constexpr double kGreedyBelow = 1e-5;

std::mt19937_64 seeded(std::uint64_t seed, std::uint64_t stream) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(stream),
                         static_cast<std::uint32_t>(stream >> 32)};
  return std::mt19937_64(sequence);
}

/// The lowest id among the largest logits.
std::int32_t largest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[best])) best = i;
  }
  return static_cast<std::int32_t>(best);
}

bool has_nan(std::span<const float> logits) {
  std::int32_t found = 0;
  for (const float logit : logits) found |= static_cast<std::int32_t>(std::isnan(logit));
  return found != 0;
}

double sum_of(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, std::uint64_t stream, const VectorKernels& vector)
    : options_(options),
      adjustment_(options),
      vector_(&vector),
      random_(seeded(options.seed, stream)) {}

std::optional<std::int32_t> Sampler::sample(std::span<const float> logits, const TextSoFar& text) {
  std::int32_t best = largest(logits);
  if (!std::isfinite(logits[static_cast<std::size_t>(best)]) || has_nan(logits)) {
    return std::nullopt;
  }
  const std::span<const float> adjusted = adjustment_.apply(logits, text);
  if (adjusted.data() != logits.data()) best = largest(adjusted);
  require(std::isfinite(adjusted[static_cast<std::size_t>(best)]), ErrorKind::usage,
          "the logit bias leaves no token to choose");
  if (options_.temperature < kGreedyBelow) return best;
  return draw(adjusted, adjusted[static_cast<std::size_t>(best)]);
}

/// Min-p compares with the likeliest token alone, so that it keeps the same tokens after top-k as
/// before it. What it drops by far is dropped first: most of a vocabulary need not be sorted then.
std::int32_t Sampler::draw(std::span<const float> logits, float best) {
  const double random = static_cast<double>(random_() >> 11) * 0x1p-53;
  if (options_.top_k <= 0 && options_.min_p <= 0) return draw_from_all(logits, best, random);
  constexpr double kSlack = 0.01;  // in the exponent: far more than its rounding
  const double least =
      options_.min_p > 0
          ? static_cast<double>(best) + options_.temperature * (std::log(options_.min_p) - kSlack)
          : -HUGE_VAL;
  find_likeliest(logits, options_.top_k <= 0 ? std::ssize(logits) : options_.top_k, least,
                 candidates_);
  compute_probabilities(logits);
  if (options_.min_p > 0) {
    drop_unlikely();
    compute_probabilities(logits);
  }
  return *choose(random, 0);
}

/// Mostly few tokens have nearly all of the probability: a vocabulary is sorted from its likely
/// end, as far as the draw needs.
std::int32_t Sampler::draw_from_all(std::span<const float> logits, float best, double random) {
  candidates_.resize(logits.size());
  std::iota(candidates_.begin(), candidates_.end(), 0);
  compute_probabilities(logits);
  std::swap(probabilities_, all_probabilities_);
  const double total = sum_of(all_probabilities_);
  for (const double depth : {8.0, 16.0, HUGE_VAL}) {  // powers of e below the likeliest
    find_likeliest(logits, std::ssize(logits),
                   static_cast<double>(best) - options_.temperature * depth, candidates_);
    probabilities_.clear();
    for (const std::int32_t id : candidates_) {
      probabilities_.push_back(all_probabilities_[static_cast<std::size_t>(id)]);
    }
    if (depth == HUGE_VAL) break;
    if (const auto token = choose(random, total - sum_of(probabilities_))) return *token;
  }
  return *choose(random, 0);
}

std::optional<std::int32_t> Sampler::choose(double random, double others) const {
  double kept = 0;
  std::size_t count = 0;
  while (count < probabilities_.size() && (count == 0 || kept < options_.top_p)) {
    kept += static_cast<double>(probabilities_[count++]);
  }
  if (kept < options_.top_p) {
    if (options_.top_p < 1 && others > 0) return std::nullopt;
    kept += others;
  }
  const double target = random * kept;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(probabilities_[i]);
    if (target < sum) return candidates_[i];
  }
  if (others > 0) return std::nullopt;
  return candidates_[count - 1];
}

void Sampler::drop_unlikely() {
  const float least = static_cast<float>(options_.min_p) * probabilities_.front();
  const auto end =
      std::ranges::find_if(probabilities_, [&](float probability) { return probability < least; });
  candidates_.resize(static_cast<std::size_t>(end - probabilities_.begin()));
}

void Sampler::compute_probabilities(std::span<const float> logits) {
  probabilities_.clear();
  for (const std::int32_t id : candidates_) {
    probabilities_.push_back(logits[static_cast<std::size_t>(id)] /
                             static_cast<float>(options_.temperature));
  }
  vector_->softmax(probabilities_.data(), std::ssize(probabilities_));
}

}  // namespace moesaic
