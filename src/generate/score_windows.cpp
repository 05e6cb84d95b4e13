#include "src/generate/score_windows.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {

std::vector<ScoreWindow> cut_windows(std::int64_t tokens, std::int64_t context,
                                     std::int64_t stride) {
  require(tokens >= 2, ErrorKind::usage, "a text of {} tokens has nothing to predict", tokens);
  require(context >= 2, ErrorKind::usage, "a context of {} tokens leaves nothing to predict",
          context);
  require(stride >= 1 && stride <= context, ErrorKind::usage,
          "a stride of {} tokens is not between 1 and the context of {}", stride, context);
  std::vector<ScoreWindow> windows;
  for (std::int64_t begin = 0, done = 1; done < tokens; begin += stride) {
    const std::int64_t end = std::min(begin + context, tokens);
    const std::int64_t first = std::max(done, begin + 1);
    if (first < end) windows.push_back({.begin = begin, .end = end, .first = first});
    done = end;
  }
  return windows;
}

}  // namespace moesaic
