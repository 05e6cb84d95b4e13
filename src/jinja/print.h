#pragma once

#include <string>

#include "src/jinja/value.h"

namespace moesaic::jinja {

/// No text may grow larger, bytes.
inline constexpr std::size_t kMaxText = std::size_t{1} << 26;

/// Python's str(): texts as they are, nothing for what is undefined, else repr(). Throws if it
/// gets too long.
[[nodiscard]] std::string to_text(const Value& value);
/// Python's repr().
[[nodiscard]] std::string repr(const Value& value);
/// Python's repr() of a float: the shortest digits that give it back, 1.0, 1e-07, inf.
[[nodiscard]] std::string repr_of_float(double value);

/// Arguments of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< of one level; without it all stands on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// Python's json.dumps(). Throws for what JSON has no form for.
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace moesaic::jinja
