#include "src/generate/stop_strings.h"

#include <algorithm>
#include <utility>

namespace moesaic {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, "");
  std::ranges::stable_sort(strings_,
                           [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

const std::string* StopStrings::longest_at_end() const {
  const auto match = std::ranges::find_if(
      strings_, [&](const std::string& string) { return held_.ends_with(string); });
  return match == strings_.end() ? nullptr : &*match;
}

/// Of the longest end of what is held that begins a string.
std::size_t StopStrings::length_to_hold() const {
  for (std::size_t start = 0; start < held_.size(); ++start) {
    const std::string_view end = std::string_view(held_).substr(start);
    if (std::ranges::any_of(strings_,
                            [&](const auto& string) { return string.starts_with(end); })) {
      return end.size();
    }
  }
  return 0;
}

std::string StopStrings::push(std::string_view piece) {
  std::string certain;
  if (found_) return certain;
  for (const char byte : piece) {
    held_ += byte;
    if (const std::string* match = longest_at_end()) {
      found_ = *match;
      certain += held_.substr(0, held_.size() - match->size());
      held_.clear();
      return certain;
    }
    const std::size_t free = held_.size() - length_to_hold();
    certain += held_.substr(0, free);
    held_.erase(0, free);
  }
  return certain;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace moesaic
