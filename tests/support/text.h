#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesaic::test {

/// How often `part` stands in `text`.
[[nodiscard]] inline std::int64_t count(std::string_view text, std::string_view part) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// `text` without times that were measured: "for 0.5 s" becomes "for T s".
[[nodiscard]] inline std::string without_times(std::string text) {
  for (std::size_t at = text.find("for "); at != std::string::npos; at = text.find("for ", at)) {
    at += 4;
    const std::size_t end = text.find_first_not_of("0123456789.", at);
    if (text.compare(end, 2, " s") == 0) text.replace(at, end - at, "T");
  }
  return text;
}

}  // namespace moesaic::test
