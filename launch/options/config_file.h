#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// A line `name = value` of a file of options. Names have - where they may have _ too.
struct ConfigEntry {
  std::string name{};
  std::string value{};  // of config_lines(): as it stands there, with quotes and comment
  std::int64_t line = 0;
};

/// The lines of a file of options. Space around names and values does not count. # starts a
/// comment, at the beginning of a line or behind a space; a value in double quotes is taken as it
/// is, with the escapes of a JSON string. `path` stands in messages. Throws Error{usage} for a line
/// that is none of this. A name may stand several times.
[[nodiscard]] std::vector<ConfigEntry> parse_config(std::string_view text, const std::string& path);

/// The same lines with values as they stand there, for who reads some of them as lists.
[[nodiscard]] std::vector<ConfigEntry> config_lines(std::string_view text, const std::string& path);
/// The value that stands there. `where` stands in messages.
[[nodiscard]] std::string read_value(std::string_view text, const std::string& where);
/// The values that stand there with commas between them: of one in quotes commas are a part, and #
/// too. Without the space around them; a value may be empty.
[[nodiscard]] std::vector<std::string> read_list(std::string_view text, const std::string& where);

/// `value` as parse_config reads it back: in quotes where it needs them.
[[nodiscard]] std::string config_value(std::string_view value);

}  // namespace moesaic
