#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/generate/step_engine.h"

namespace moesaic {

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  std::int64_t batch_tokens = 512;              ///< StepOptions
  std::int64_t parallel = 8;                    ///< StepOptions
  std::int64_t cache_bytes = KvPool::kNoLimit;  ///< StepOptions
  std::vector<std::int64_t> stop_tokens;
  std::vector<std::string> stop_strings;
  SamplingOptions sampling;
  const Tokenizer* tokenizer = nullptr;  ///< StepOptions
  std::function<bool()> stop_wanted{};   ///< StepOptions
};

/// Called on rank 0; `request` is the index of the prompt.
struct GenerateEvents {
  std::function<void(const NewToken&)> on_token;
  /// In the order in which they end.
  std::function<void(const Finished&)> on_finished;
};

struct GenerateResult {
  std::vector<Finished> completions;  // rank 0: one a prompt, in their order
  StepStatistics statistics;
  bool complete = true;  // all ranks: false if it was stopped before; completions has gaps then
};

/// Continues `prompts` of rank 0. The index of a prompt is its stream. Collective over `world`.
[[nodiscard]] GenerateResult generate(Transformer& transformer, Communicator& world,
                                      std::span<const std::vector<std::int32_t>> prompts,
                                      const GenerateOptions& options, const GenerateEvents& events);

}  // namespace moesaic
