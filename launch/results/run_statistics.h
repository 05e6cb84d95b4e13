#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/job/expert_balance.h"
#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/results/peak_memory.h"
#include "src/generate/step_engine.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

/// What one rank's engine did.
struct RankStatistics {
  PhaseTimes times;
  ExpertLoad load;
  RowCounters traffic;
};

/// Tokens and seconds of one kind of work.
struct Throughput {
  std::int64_t tokens = 0;
  double seconds = 0;

  [[nodiscard]] double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

/// A run, over all ranks.
struct RunStatistics {
  LoadSummary load;
  Throughput prompt;
  Throughput generation;           // no tokens: not told
  std::int64_t shared_tokens = 0;  // of prompts, that other prompts began with and had computed
  std::vector<RankStatistics> ranks;
  PeakMemory memory;
  std::string sampling{};  // JSON: how was sampled; empty: not told
  ExpertBalance balance;
  double wall_seconds = 0;  // of all steps (StepStatistics); 0: not told
};

/// The statistics of all ranks' engines. Collective.
[[nodiscard]] std::vector<RankStatistics> gather_statistics(const Runtime& runtime,
                                                            const Transformer& transformer);

/// What an engine's steps took, without sampling and balance. Collective.
[[nodiscard]] RunStatistics gather_run(const Runtime& runtime, Engine& engine,
                                       const StepStatistics& steps);

/// Some lines for people.
[[nodiscard]] std::string statistics_text(const RunStatistics& run);
/// The same as members of a JSON object; seconds, bytes, tokens.
[[nodiscard]] std::string statistics_json(const RunStatistics& run, const Runtime& runtime);

/// Ranks, nodes, transport, instruction set and threads, one line.
[[nodiscard]] std::string runtime_text(const Runtime& runtime);
/// Logs that line, once.
void announce(const Runtime& runtime);

}  // namespace moesaic
