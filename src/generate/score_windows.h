#pragma once

#include <cstdint>
#include <vector>

namespace moesaic {

/// A part of a text that is scored as a sequence of its own. Positions in the text.
struct ScoreWindow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first =
      0;  // begin < first: the tokens from here to `end` count, the others are read

  friend bool operator==(const ScoreWindow&, const ScoreWindow&) = default;
};

/// Windows of at most `context` tokens, each `stride` tokens after the one before, over a text of
/// `tokens` tokens, the last up to its end: each counts what those before have not. So every token
/// but the first counts once, given at least `context` - `stride` tokens before it; where the two
/// are equal, the first token of a window has none and does not count. This is the recipe of
/// transformers' "Perplexity of fixed-length models". Throws Error{usage} for a stride below 1 or
/// above `context`, and where nothing would count.
[[nodiscard]] std::vector<ScoreWindow> cut_windows(std::int64_t tokens, std::int64_t context,
                                                   std::int64_t stride);

}  // namespace moesaic
