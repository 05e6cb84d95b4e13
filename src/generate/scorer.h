#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/generate/score_windows.h"
#include "src/generate/step_engine.h"
#include "src/model/transformer.h"

namespace moesaic {

/// What the model made of one token, given those before it in its window.
struct TokenScore {
  double log_probability = 0;  // natural log
  std::int64_t rank = 0;       // 1: the likeliest token (of equals the one with the least id)
};

/// Of one document, or of several.
struct DocumentScore {
  double loss = 0;  // the tokens that count: minus their log-probabilities, summed
  std::int64_t predicted_tokens = 0;
  bool is_greedy = true;  // each of them was the likeliest

  /// Takes in the next token.
  void add(const TokenScore& token);
  [[nodiscard]] double mean_loss() const { return loss / static_cast<double>(predicted_tokens); }
};

/// A text and how it is scored.
struct ScoreDocument {
  std::vector<std::int32_t> tokens;
  std::vector<ScoreWindow> windows;  // in ascending order; none: all is known
  DocumentScore known{};             // of the tokens before those that the windows count
  std::vector<bool> counted{};       // of each token: whether it counts; empty: all do

  [[nodiscard]] bool counts(std::int64_t token) const {
    return counted.empty() || counted[static_cast<std::size_t>(token)];
  }
};

/// Scores of neighbouring tokens.
struct TokenScores {
  std::int64_t document = 0;
  std::int64_t first = 0;  // token of the document
  std::span<const TokenScore> scores;
};

/// The first token whose values are not finite, which damaged weights or an overflow bring about.
struct ScoreDamage {
  std::int64_t document = 0;
  std::int64_t token = 0;  // of the document
  std::string place;       // where they came to be: Damage
};

/// Rank 0 hears of documents and tokens in their order, as soon as those before are told.
struct ScoreEvents {
  std::function<void(const TokenScores&)> on_tokens;
  std::function<void(std::int64_t document, const DocumentScore&)> on_document;
  /// Called where a window is computed, with some of its rows, in order. Requests are the windows
  /// of all documents, counted through.
  std::function<void(const LogitsRows&)> on_logits;
};

struct ScoreResult {
  DocumentScore total;                // rank 0: over all tokens that were told or known
  std::optional<ScoreDamage> damage;  // rank 0: what ended it
  StepStatistics statistics;
  bool complete = true;  // all ranks: false if a rank was asked to stop before (StepOptions)
};

/// Tells the documents that have no windows, and so are known, where they stand before all others.
/// Returns the score over them.
DocumentScore tell_known(std::span<const ScoreDocument> documents, const ScoreEvents& events);

/// Scores `documents` of rank 0, several windows at a time, spread over the ranks: the first one
/// is computed by rank 0. A score does not depend on the others nor on the ranks. It ends at the
/// first token whose values are not finite. Documents that are known are told like others.
/// Collective over `world`.
[[nodiscard]] ScoreResult score(Transformer& transformer, Communicator& world,
                                std::span<const ScoreDocument> documents,
                                const StepOptions& options, const ScoreEvents& events);

}  // namespace moesaic
