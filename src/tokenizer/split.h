#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "src/tokenizer/regex.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {

/// What becomes of the parts of a text that a pattern matches.
enum class SplitBehavior {
  removed,               ///< dropped
  isolated,              ///< each a piece of its own
  merged_with_previous,  ///< joined to the piece before
  merged_with_next,      ///< joined to the piece after
  contiguous,            ///< neighbouring matches are one piece
};

/// "Removed", "Isolated", ...; throws Error{file} for other names.
[[nodiscard]] SplitBehavior split_behavior(const Json& name);

/// The pieces of `text`, in order. `matches` ascend and do not overlap; `invert` takes what lies
/// between them for the matches.
[[nodiscard]] std::vector<Span> split_spans(std::string_view text, const std::vector<Span>& matches,
                                            SplitBehavior behavior, bool invert = false);

/// Each character for which `is_match(code_point)` holds. `text` must be UTF-8.
template <typename Predicate>
[[nodiscard]] std::vector<Span> find_characters(std::string_view text, Predicate is_match) {
  std::vector<Span> matches;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (is_match(next_code_point(text, at))) matches.push_back({begin, at});
  }
  return matches;
}

}  // namespace moesaic
