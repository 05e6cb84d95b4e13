#pragma once

#include <span>

namespace moesaic {

/// Code points first..last, assigned after Unicode 14, and an older code point with the same
/// general category and UTF-8 length.
struct UnicodeAddition {
  char32_t first;
  char32_t last;
  char32_t stand_in;
};

/// Unicode 15 and 16, ascending.
[[nodiscard]] std::span<const UnicodeAddition> unicode_additions() noexcept;

}  // namespace moesaic
