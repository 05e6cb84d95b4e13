#include "launch/options/config_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "base/split.h"

namespace moesaic {
namespace {

constexpr std::string_view kSpace = " \t\r";

/// Up to the # of a comment.
std::string_view without_comment(std::string_view text) {
  for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) {
    if (at == 0 || kSpace.find(text[at - 1]) != std::string_view::npos) return text.substr(0, at);
  }
  return text;
}

/// As a value that has no double quotes. What shells take them for single ones are not, and to
/// keep them would surprise more than to refuse them.
std::string plain_value(std::string_view text, const std::string& where) {
  require(
      !text.starts_with('\''), ErrorKind::usage,
      "{}: {} begins with a single quote, which quotes nothing here: write double ones, or none",
      where, json_quote(text));
  return std::string(text);
}

/// The value that a text with quotes in front stands for; what follows them is left in `text`.
std::string take_quoted(std::string_view& text, const std::string& where) {
  std::size_t end = 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  require(end < text.size(), ErrorKind::usage, "{}: the quotes do not end", where);
  const std::string_view quoted = text.substr(0, end + 1);
  text = trimmed(text.substr(end + 1));
  try {
    return Json::parse(quoted, where).as_string();
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{}; in quotes stands a text of JSON, \\\\ for each backslash of it",
         error.what());
  }
}

/// Nothing but a comment may follow quotes, or the comma of a list.
void require_end_of_quotes(std::string_view rest, const std::string& where) {
  require(rest.empty() || rest.starts_with('#'), ErrorKind::usage, "{}: {} follows the quotes",
          where, json_quote(rest));
}

}  // namespace

std::string read_value(std::string_view text, const std::string& where) {
  if (!text.starts_with('"')) return plain_value(trimmed(without_comment(text)), where);
  std::string value = take_quoted(text, where);
  require_end_of_quotes(text, where);
  return value;
}

std::vector<std::string> read_list(std::string_view text, const std::string& where) {
  std::vector<std::string> values;
  while (true) {
    text = trimmed(text);
    if (text.starts_with('"')) {
      values.push_back(take_quoted(text, where));
      if (!text.starts_with(',')) {
        require_end_of_quotes(text, where);
        return values;
      }
    } else {
      const std::string_view plain = without_comment(text);
      const std::size_t end = plain.find(',');
      values.push_back(plain_value(trimmed(plain.substr(0, end)), where));
      if (end == std::string_view::npos) return values;
      text.remove_prefix(end);
    }
    text.remove_prefix(1);
  }
}

std::vector<ConfigEntry> config_lines(std::string_view text, const std::string& path) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<ConfigEntry> entries;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = fmt::format("{} line {}", path, number);
    require(line.find('\0') == std::string_view::npos, ErrorKind::usage,
            "{}: a NUL byte is no text", where);
    const std::size_t equals = line.find('=');
    require(equals != std::string_view::npos && equals > 0, ErrorKind::usage,
            "{}: {} is not name = value", where, json_quote(line.substr(0, 60)));
    ConfigEntry entry{.name = std::string(trimmed(line.substr(0, equals))), .line = number};
    std::ranges::replace(entry.name, '_', '-');
    entry.value = trimmed(line.substr(equals + 1));
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<ConfigEntry> parse_config(std::string_view text, const std::string& path) {
  std::vector<ConfigEntry> entries = config_lines(text, path);
  for (ConfigEntry& entry : entries) {
    entry.value = read_value(entry.value, fmt::format("{} line {}", path, entry.line));
  }
  return entries;
}

std::string config_value(std::string_view value) {
  const bool is_plain = !value.empty() && trimmed(value) == value &&
                        without_comment(value) == value && !value.starts_with('"') &&
                        !value.starts_with('\'') && std::ranges::all_of(value, [](char c) {
                          const auto byte = static_cast<unsigned char>(c);
                          return byte >= ' ' && byte != 0x7f;
                        });
  return is_plain ? std::string(value) : json_quote(value);
}

}  // namespace moesaic
