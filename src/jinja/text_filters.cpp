#include <algorithm>

#include "src/jinja/characters.h"
#include "src/jinja/filters.h"
#include "src/jinja/format.h"
#include "src/jinja/named_functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/print.h"
#include "src/jinja/text_functions.h"
#include "src/tokenizer/unicode.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

template <std::string (*change)(std::string_view)>
Value changed(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "the filter", {});
  return Value(change(to_text(input)));
}

/// Words in upper case at their beginning, as Jinja's filter has them, not as str.title().
std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const bool separates =
        is_python_space(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
    if (inside || separates) {
      out += lowercase(text.substr(begin, at - begin));
    } else {
      append_upper(c, out);
    }
    inside = !separates;
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string same(std::string_view text) {
  return std::string(text);
}

Value trim(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "trim", {"chars"});
  const std::string text = to_text(input);
  if (bound[0] == nullptr || bound[0]->is_none()) return Value(stripped(text));
  return Value(stripped(text, Side::both, text_of(*bound[0], "what trim takes")));
}

Value replace(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "replace", {"old", "new", "count"}, 2);
  const bool all = bound[2] == nullptr || bound[2]->is_none();
  return Value(replaced(to_text(input), to_text(*bound[0]), to_text(*bound[1]),
                        all ? -1 : integer_of(*bound[2], "count")));
}

Value indent(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "indent", {"width", "first", "blank"});
  std::string space(4, ' ');
  if (bound[0] != nullptr && bound[0]->is_text()) {
    space = *bound[0]->text();
  } else if (bound[0] != nullptr) {
    const std::int64_t width = integer_of(*bound[0], "the width");
    if (width > 10000) refuse("a width is over 10000");
    space.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool blank = bound[2] != nullptr && bound[2]->truth();
  std::string out = bound[1] != nullptr && bound[1]->truth() ? space : "";
  bool first = true;
  for (const Value& line : lines_of(to_text(input) + "\n", false)) {
    if (!first) out += "\n";
    if (!first && (blank || !line.text()->empty())) out += space;
    first = false;
    out += *line.text();
    if (out.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
  }
  return Value(std::move(out));
}

Value center(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "center", {"width"});
  const std::int64_t width = bound[0] == nullptr ? 80 : integer_of(*bound[0], "the width");
  return Value(padded_text(to_text(input), Side::both, width, " "));
}

Value format(Run&, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    refuse("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.named.empty()) {
    return Value(
        format_percent(to_text(input), make_sequence(arguments.positional, SequenceKind::tuple)));
  }
  Dict values;
  for (const auto& [name, value] : arguments.named) values.set(Value(name), value);
  return Value(format_percent(to_text(input), make_dict(std::move(values))));
}

Value truncate(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound[0] == nullptr ? 255 : integer_of(*bound[0], "the length");
  const std::string end = bound[2] == nullptr ? "..." : text_of(*bound[2], "the end");
  const std::int64_t leeway =
      bound[3] == nullptr || bound[3]->is_none() ? 5 : integer_of(*bound[3], "the leeway");
  const std::int64_t kept = length - character_count(end);
  if (kept < 0) refuse("expected a length of at least {}, got {}", character_count(end), length);
  const std::optional<std::int64_t> size = length_of(input);
  if (!size) refuse("object of type '{}' has no length", input.type_name());
  if (*size <= length + leeway) return input;
  const std::string_view text = text_of(input, "what truncate cuts");
  std::string_view cut = text.substr(0, byte_of_character(text, kept));
  if (bound[1] == nullptr || !bound[1]->truth()) cut = cut.substr(0, cut.rfind(' '));
  return Value(std::string(cut) + end);
}

Value wordcount(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "wordcount", {});
  const std::string text = to_text(input);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_word = is_alphabetic(c) || is_number_like(c) || c == U'_';
    words += is_word && !inside ? 1 : 0;
    inside = is_word;
  }
  return Value(words);
}

constexpr NamedFunction kFilters[] = {
    {"upper", changed<upper_case>},
    {"lower", changed<lowercase>},
    {"title", changed<titled>},
    {"capitalize", changed<capitalized>},
    {"escape", changed<escaped>},
    {"e", changed<escaped>},
    {"safe", changed<same>},
    {"string", changed<same>},
    {"trim", trim},
    {"replace", replace},
    {"indent", indent},
    {"center", center},
    {"format", format},
    {"truncate", truncate},
    {"wordcount", wordcount},
};

}  // namespace

Function text_filter(std::string_view name) {
  return look_up(kFilters, name);
}

}  // namespace moesaic::jinja
