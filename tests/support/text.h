#pragma once

#include <cstdint>
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

}  // namespace moesaic::test
