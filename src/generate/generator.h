#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/generate/sampler.h"
#include "src/model/transformer.h"

namespace moesaic {

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  /// Tokens of one forward pass of a rank, prompts and continuations together.
  std::int64_t batch_tokens = 512;
  std::int64_t parallel = 8;  ///< sequences under way at a time on a rank
  std::vector<std::int64_t> stop_tokens;
  SamplingOptions sampling;
};

enum class StopReason { end_of_sequence, length };

/// What became of one request; known on every rank.
struct Completion {
  std::vector<std::int32_t> tokens;  // without the stop token
  StopReason reason = StopReason::length;
};

/// Tokens and seconds, prompt processing and generation apart, as this rank saw them.
struct GenerateStatistics {
  std::int64_t prompt_tokens = 0;     // of all ranks
  std::int64_t generated_tokens = 0;  // of all ranks
  double prompt_seconds = 0;          // steps in which any rank processed a prompt
  double generate_seconds = 0;        // all other steps
};

/// Called on every rank for each new token, in the same order everywhere.
using TokenCallback = std::function<void(std::int64_t request, std::int32_t token)>;

struct GenerateResult {
  std::vector<Completion> completions;  // one a request
  GenerateStatistics statistics;
};

/// Continues prompts. Rank r of `world` takes requests r, r + R, ...; all ranks pass the same
/// prompts. Collective over `world`.
[[nodiscard]] GenerateResult generate(Transformer& transformer, Communicator& world,
                                      std::span<const std::vector<std::int32_t>> prompts,
                                      const GenerateOptions& options,
                                      const TokenCallback& on_token);

}  // namespace moesaic
