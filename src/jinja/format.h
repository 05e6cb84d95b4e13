#pragma once

#include <string>
#include <string_view>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// Python's `text % values`: %s %r %d %i %u %f %e %g %x %o %c %% with flags, width, precision and
/// (names).
[[nodiscard]] std::string format_percent(std::string_view text, const Value& values);

/// Python's text.format(...): fields by order, number or name, their attributes and indexes,
/// !s and !r, and format specs of texts and numbers.
[[nodiscard]] std::string format_fields(std::string_view text, const Arguments& arguments);

/// A format spec of Python, such as "<8", "05d", ",.2f".
struct FormatSpec {
  std::string fill = " ";  ///< one character
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  std::int64_t width = 0;
  char grouping = '\0';
  std::int64_t precision = -1;  ///< of integers, which only % gives one: how many digits at least
  char type = '\0';
};
[[nodiscard]] FormatSpec parse_format_spec(std::string_view spec);
[[nodiscard]] std::string apply_format(const Value& value, const FormatSpec& spec);
/// What %c makes of an integer, or of a text of one character.
[[nodiscard]] std::string character_of(const Value& value);

}  // namespace moesaic::jinja
