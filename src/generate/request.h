#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "src/generate/sampling_options.h"

namespace moesaic {

/// Requests of one StepEngine are numbered from 0 in the order of their arrival.
using RequestId = std::int64_t;

/// What somebody wants of a model: a prompt continued, or the logits of its tokens, or both.
struct Request {
  static constexpr std::int64_t kNoLogits = std::numeric_limits<std::int64_t>::max();

  std::vector<std::int32_t> tokens;  // the prompt
  std::int64_t max_new_tokens = 0;   // 0: the prompt is processed, nothing is sampled
  SamplingOptions sampling;
  /// Tells the draws of requests with one seed apart: the same prompt, options, seed and stream
  /// give the same tokens, whatever the ranks and the neighbours.
  std::uint64_t stream = 0;
  /// Requests of one group have a prompt in common, which a rank computes once: they go to one rank
  /// as far as that pays (Schedule).
  std::optional<std::int64_t> group{};
  std::vector<std::int64_t> stop_tokens;
  /// The text ends before the first of them. They need a tokenizer (StepOptions).
  std::vector<std::string> stop_strings;
  /// Each new token comes with its log-probability and those of so many likeliest ones.
  std::optional<std::int64_t> logprobs{};
  /// Logits of the positions from here on, of prompt and continuation, are handed out.
  std::int64_t logits_from = kNoLogits;
};

/// Why a request ended. `length` also where nothing was to be sampled and all is computed.
/// `damaged`: values are not finite (Damage).
enum class StopReason : std::int32_t { end_of_sequence, stop_string, length, cancelled, damaged };

}  // namespace moesaic
