#include "launch/options/nearest_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace moesaic {
namespace {

/// Optimal string alignment distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      edits[i][j] = std::min({replace, edits[i - 1][j] + 1, edits[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
      }
    }
  }
  return edits[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const bool begins = word.size() >= 3 && candidate.starts_with(word);
    const std::size_t edits = begins ? 1 : edit_distance(word, candidate);
    if (edits < least && edits < candidate.size()) {
      least = edits;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates,
                         std::string_view prefix) {
  const std::string nearest = nearest_name(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, nearest);
}

}  // namespace moesaic
