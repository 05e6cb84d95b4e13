#include "src/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace moesaic {
namespace {

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
  require(std::isfinite(logits[best]), ErrorKind::internal,
          "the logits are not finite (largest: {}): damaged weights or an overflow", logits[best]);
  return static_cast<std::int32_t>(best);
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  require(options.temperature >= 0 && std::isfinite(options.temperature), ErrorKind::usage,
          "--temp must be 0 or more, not {}", options.temperature);
  require(options.top_k >= 0, ErrorKind::usage, "--top-k must be 0 (no limit) or more, not {}",
          options.top_k);
  require(options.top_p > 0 && options.top_p <= 1, ErrorKind::usage,
          "--top-p must be above 0 and at most 1, not {}", options.top_p);
}

Sampler::Sampler(const SamplingOptions& options, std::uint64_t stream, const VectorKernels& vector)
    : options_(options), vector_(&vector), random_(seeded(options.seed, stream)) {
  check_sampling(options);
}

std::int32_t Sampler::sample(std::span<const float> logits) {
  const std::int32_t best = largest(logits);
  return options_.temperature == 0 ? best : draw(logits);
}

std::int32_t Sampler::draw(std::span<const float> logits) {
  candidates_.resize(logits.size());
  std::iota(candidates_.begin(), candidates_.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float logit_a = logits[static_cast<std::size_t>(a)];
    const float logit_b = logits[static_cast<std::size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  };
  std::erase_if(candidates_,
                [&](std::int32_t id) { return std::isnan(logits[static_cast<std::size_t>(id)]); });
  const auto limit = static_cast<std::ptrdiff_t>(
      options_.top_k == 0
          ? candidates_.size()
          : std::min<std::size_t>(candidates_.size(), static_cast<std::size_t>(options_.top_k)));
  std::partial_sort(candidates_.begin(), candidates_.begin() + limit, candidates_.end(), likelier);
  candidates_.resize(static_cast<std::size_t>(limit));

  probabilities_.clear();
  for (const std::int32_t id : candidates_) {
    probabilities_.push_back(logits[static_cast<std::size_t>(id)] /
                             static_cast<float>(options_.temperature));
  }
  vector_->softmax(probabilities_.data(), static_cast<std::int64_t>(probabilities_.size()));
  double kept = 0;  // the shortest head of the list whose probabilities reach top_p
  std::size_t count = 0;
  while (count < probabilities_.size() && (count == 0 || kept < options_.top_p)) {
    kept += static_cast<double>(probabilities_[count++]);
  }
  const double target = static_cast<double>(random_() >> 11) * 0x1p-53 * kept;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(probabilities_[i]);
    if (target < sum) return candidates_[i];
  }
  return candidates_[count - 1];
}

}  // namespace moesaic
