#pragma once

#include <cstdint>
#include <vector>

namespace moesaic {

/// Added to the logit of a token; -infinity forbids it.
struct LogitBias {
  std::int32_t token = 0;
  float bias = 0;

  [[nodiscard]] bool operator==(const LogitBias&) const = default;
};

/// How the next token is chosen from logits. A temperature of 0 (below 1e-5) is
/// greedy: the largest logit, the lowest id among equals. The order is vLLM's: bias, penalties
/// (repetition, frequency, presence), temperature, min-p, top-k, top-p.
struct SamplingOptions {
  double temperature = 0.8;
  std::int64_t top_k = 40;  // 0 or -1: no limit
  double top_p = 0.95;      // 1: no limit
  double min_p = 0;         // least probability, as a share of the likeliest token's; 0: no limit
  std::uint64_t seed = 0;
  /// Divides positive logits of tokens that prompt or continuation have, multiplies others; 1:
  /// none.
  double repetition_penalty = 1;
  double frequency_penalty = 0;      // subtracted for each time that the continuation has the token
  double presence_penalty = 0;       // subtracted once if the continuation has the token
  std::int64_t penalty_last_n = -1;  // the penalties look at so many tokens; -1: at all
  std::vector<LogitBias> logit_bias{};

  [[nodiscard]] bool penalizes() const noexcept {
    return penalty_last_n != 0 &&
           (repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0);
  }
};

/// Throws Error{usage} for options out of range, or a bias of a token that is not below
/// `vocab_size`.
void check_sampling(const SamplingOptions& options, std::int64_t vocab_size);

}  // namespace moesaic
