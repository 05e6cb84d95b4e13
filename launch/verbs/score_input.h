#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "src/generate/scorer.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// What is told of a document besides its tokens.
struct ScoreLabel {
  std::string where;         // "book.txt", "pairs.jsonl line 3"
  std::string id;            // JSON text of the line's "id"; empty if it has none
  bool is_pair = false;      // a context and its continuation, which alone is scored
  std::int64_t windows = 0;  // that it is cut into
};

/// Of all windows that are to be scored.
struct ScoreSizes {
  std::int64_t windows = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;  // tokens of a window
};

/// The texts of --file as tokens of rank 0, cut into windows.
struct ScoreInput {
  std::optional<Tokenizer> tokenizer;    // rank 0, if there is any text or --logprobs-out
  std::vector<ScoreLabel> labels;        // rank 0: one a document
  std::vector<ScoreDocument> documents;  // rank 0

  [[nodiscard]] ScoreSizes sizes() const;
};

/// Reads the files of --file, each of which is one text, or JSONL if it begins with '{': objects
/// with "text", or with "context" and "continuation", or with "input_ids" and "labels", and perhaps
/// an "id"; texts are strings, or arrays of token ids. Throws AgreedError on all ranks if one is
/// not what it should be, has nothing to predict, or is too long for --no-window; or if a
/// continuation does not fit into the context. Of a context that is too long the end is taken.
/// Collective.
[[nodiscard]] ScoreInput read_score_input(const Runtime& runtime, const OpenModel& model);

}  // namespace moesaic
