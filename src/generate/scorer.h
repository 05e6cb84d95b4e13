#pragma once

#include <functional>
#include <span>

#include "comm/communicator.h"
#include "src/model/transformer.h"

namespace moesaic {

struct ScoreResult {
  double mean_loss = 0;  // natural log, over tokens 1 .. n - 1 given those before
  std::int64_t predicted_tokens = 0;
  double seconds = 0;
};

/// Called on rank 0 with logits [rows, vocab] of the positions from `first` on, in order.
using LogitsSink = std::function<void(std::int64_t first, MatrixView<const float> logits)>;

/// Mean loss of one sequence, `batch_tokens` of it a forward pass. Rank 0 of `world` has the
/// sequence, the others serve their experts; the result is known on all. Collective over `world`.
[[nodiscard]] ScoreResult score(Transformer& transformer, Communicator& world,
                                std::span<const std::int32_t> tokens, std::int64_t batch_tokens,
                                const LogitsSink& sink);

}  // namespace moesaic
