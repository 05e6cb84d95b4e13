#pragma once

#include <string>
#include <string_view>

namespace moesaic::jinja {

/// What a string literal of Python says: `text` stands between its quotes. Names of characters
/// (\N) are refused.
[[nodiscard]] std::string unescaped(std::string_view text);

struct NumberLiteral {
  std::string text;  ///< decimal digits, or a float as C++ reads it
  std::size_t bytes = 0;
  bool is_real = false;
};
/// The number at the front of `text`, which begins with a digit: 12, 1_000, 0x1F, 0o17, 0b1, 1.5,
/// 1e-3.
[[nodiscard]] NumberLiteral read_number(std::string_view text);

}  // namespace moesaic::jinja
