#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "src/generate/step_engine.h"
#include "src/model/transformer.h"

namespace moesaic {

/// Of one document.
struct DocumentScore {
  double loss = 0;  // natural log, summed over tokens 1 .. n - 1 given those before
  std::int64_t predicted_tokens = 0;

  [[nodiscard]] double mean_loss() const { return loss / static_cast<double>(predicted_tokens); }
};

struct ScoreResult {
  std::vector<DocumentScore> documents;  // in their order
  StepStatistics statistics;
  bool complete = true;  // false if it was stopped before (StepOptions): documents may lack tokens
};

/// Called where a document is computed, with some of its rows, in order.
using LogitsSink = std::function<void(const LogitsRows& rows)>;

/// Losses of `documents` of rank 0, several of them at a time, spread over the ranks: the first one
/// is computed by rank 0. A loss does not depend on the others nor on the ranks. The result is
/// known on all ranks. Throws Error{usage} for a document with nothing to predict. Collective over
/// `world`.
[[nodiscard]] ScoreResult score(Transformer& transformer, Communicator& world,
                                std::span<const std::vector<std::int32_t>> documents,
                                const StepOptions& options, const LogitsSink& sink);

}  // namespace moesaic
