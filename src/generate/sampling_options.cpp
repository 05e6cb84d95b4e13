#include "src/generate/sampling_options.h"

#include <cmath>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr double kMostPenalty = 100;
/// A logit divided by it stays finite.
constexpr double kLeastRepetition = 1e-6;

void check_penalties(const SamplingOptions& options) {
  require(
      options.repetition_penalty >= kLeastRepetition && options.repetition_penalty <= kMostPenalty,
      ErrorKind::usage, "the repetition penalty must be from {} to {}, not {}", kLeastRepetition,
      kMostPenalty, options.repetition_penalty);
  require(std::abs(options.frequency_penalty) <= kMostPenalty, ErrorKind::usage,
          "the frequency penalty must be from {} to {}, not {}", -kMostPenalty, kMostPenalty,
          options.frequency_penalty);
  require(std::abs(options.presence_penalty) <= kMostPenalty, ErrorKind::usage,
          "the presence penalty must be from {} to {}, not {}", -kMostPenalty, kMostPenalty,
          options.presence_penalty);
  require(options.penalty_last_n >= -1, ErrorKind::usage,
          "penalties look at -1 (all), 0 (none) or more last tokens, not {}",
          options.penalty_last_n);
}

}  // namespace

void check_sampling(const SamplingOptions& options, std::int64_t vocab_size) {
  require(options.temperature >= 0 && std::isfinite(options.temperature), ErrorKind::usage,
          "the temperature must be 0 or more, not {}", options.temperature);
  require(options.top_k >= -1, ErrorKind::usage, "top-k must be 0 or -1 (no limit) or more, not {}",
          options.top_k);
  require(options.top_p > 0 && options.top_p <= 1, ErrorKind::usage,
          "top-p must be above 0 and at most 1, not {}", options.top_p);
  require(options.min_p >= 0 && options.min_p <= 1, ErrorKind::usage,
          "min-p must be from 0 to 1, not {}", options.min_p);
  check_penalties(options);
  for (const auto& [token, bias] : options.logit_bias) {
    require(token >= 0 && token < vocab_size, ErrorKind::usage,
            "a logit bias of token {}, which is outside the model's vocabulary of {}", token,
            vocab_size);
    require(bias < HUGE_VALF, ErrorKind::usage, "a logit bias of {} for token {} is not a number",
            bias, token);
  }
}

}  // namespace moesaic
