#pragma once

#include <string_view>
#include <vector>

namespace moesaic {

/// Without the blanks, tabs and carriage returns around it.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// What stands between the separators: one part more than there are of them.
[[nodiscard]] inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The items of a list that a user has written: blanks may stand around the separators.
[[nodiscard]] inline std::vector<std::string_view> split_list(std::string_view text,
                                                              char separator = ',') {
  std::vector<std::string_view> items = split(text, separator);
  for (std::string_view& item : items) item = trimmed(item);
  return items;
}

}  // namespace moesaic
