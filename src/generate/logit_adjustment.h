#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/generate/sampling_options.h"

namespace moesaic {

/// A prompt and the part of its continuation that is there.
struct TextSoFar {
  std::span<const std::int32_t> tokens;  // of both
  std::int64_t prompt_tokens = 0;
};

/// Logit bias and penalties of one sequence, bit for bit as transformers' SequenceBias- and
/// RepetitionPenaltyLogitsProcessor (and vLLM's frequency and presence penalties) compute them.
class LogitAdjustment {
 public:
  explicit LogitAdjustment(const SamplingOptions& options);

  /// The logits to sample from: `logits` themselves if nothing changes them, else a copy that holds
  /// until the next call. Between calls the text may only grow.
  [[nodiscard]] std::span<const float> apply(std::span<const float> logits, const TextSoFar& text);

 private:
  struct Counts {
    std::int32_t all = 0;        // in prompt and continuation
    std::int32_t generated = 0;  // in the continuation
  };
  void follow(const TextSoFar& text);
  void count(const TextSoFar& text, std::int64_t position, std::int32_t change);
  [[nodiscard]] float penalized(float logit, const Counts& counts) const;

  std::vector<LogitBias> bias_;
  bool penalizes_;
  float repetition_;
  float frequency_;
  float presence_;
  std::int64_t last_n_;
  std::unordered_map<std::int32_t, Counts> counts_;  // of positions [begin_, end_)
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::vector<float> adjusted_;
};

}  // namespace moesaic
