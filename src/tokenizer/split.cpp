#include "src/tokenizer/split.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace moesaic {
namespace {

struct Section {
  Span span;
  bool is_match = false;
};

/// Matches and what lies between them: the whole text.
std::vector<Section> sections(std::string_view text, const std::vector<Span>& matches,
                              bool invert) {
  std::vector<Section> all;
  all.reserve(2 * matches.size() + 1);
  std::size_t covered = 0;
  for (const Span& match : matches) {
    if (covered != match.begin) all.push_back({{covered, match.begin}, invert});
    all.push_back({match, !invert});
    covered = match.end;
  }
  if (covered != text.size()) all.push_back({{covered, text.size()}, invert});
  return all;
}

/// Joins a section to the one before it wherever `joins(previous_is_match, is_match)` says so.
template <typename Joins>
std::vector<Span> join(const std::vector<Section>& all, Joins joins) {
  std::vector<Span> spans;
  bool previous = false;
  for (const Section& section : all) {
    if (!spans.empty() && joins(previous, section.is_match)) {
      spans.back() = {std::min(spans.back().begin, section.span.begin),
                      std::max(spans.back().end, section.span.end)};
    } else {
      spans.push_back(section.span);
    }
    previous = section.is_match;
  }
  return spans;
}

}  // namespace

SplitBehavior split_behavior(const Json& name) {
  const std::string text = name.as_string();
  if (text == "Removed") return SplitBehavior::removed;
  if (text == "Isolated") return SplitBehavior::isolated;
  if (text == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (text == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (text == "Contiguous") return SplitBehavior::contiguous;
  fail(ErrorKind::file,
       "{} is \"{}\"; supported are Removed, Isolated, MergedWithPrevious, MergedWithNext and "
       "Contiguous",
       name.where(), text);
}

std::vector<Span> split_spans(std::string_view text, const std::vector<Span>& matches,
                              SplitBehavior behavior, bool invert) {
  std::vector<Section> all = sections(text, matches, invert);
  switch (behavior) {
    case SplitBehavior::removed:
      std::erase_if(all, [](const Section& section) { return section.is_match; });
      [[fallthrough]];
    case SplitBehavior::isolated:
      return join(all, [](bool, bool) { return false; });
    case SplitBehavior::contiguous:
      return join(all, [](bool previous, bool now) { return previous == now; });
    case SplitBehavior::merged_with_previous:
      return join(all, [](bool previous, bool now) { return now && !previous; });
    case SplitBehavior::merged_with_next: {
      std::reverse(all.begin(), all.end());
      std::vector<Span> spans = join(all, [](bool previous, bool now) { return now && !previous; });
      std::reverse(spans.begin(), spans.end());
      return spans;
    }
  }
  fail(ErrorKind::internal, "unknown split behavior");
}

}  // namespace moesaic
