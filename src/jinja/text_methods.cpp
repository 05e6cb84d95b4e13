#include <algorithm>

#include "src/jinja/characters.h"
#include "src/jinja/format.h"
#include "src/jinja/methods.h"
#include "src/jinja/named_functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/print.h"
#include "src/jinja/text_functions.h"
#include "src/tokenizer/unicode.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

template <Side side>
Value strip(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "strip()", {"chars"});
  if (bound[0] == nullptr || bound[0]->is_none()) return Value(stripped(*self.text(), side));
  return Value(stripped(*self.text(), side, text_of(*bound[0], "what strip() takes")));
}

template <std::string (*change)(std::string_view)>
Value changed(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "the method", {});
  return Value(change(*self.text()));
}

template <bool from_right>
Value split(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "split()", {"sep", "maxsplit"});
  const std::int64_t most = bound[1] == nullptr ? -1 : integer_of(*bound[1], "maxsplit");
  std::optional<std::string_view> separator;
  if (bound[0] != nullptr && !bound[0]->is_none()) separator = text_of(*bound[0], "the separator");
  return make_sequence(split_text(*self.text(), separator, most, from_right));
}

Value splitlines(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "splitlines()", {"keepends"});
  return make_sequence(lines_of(*self.text(), bound[0] != nullptr && bound[0]->truth()));
}

template <bool at_end>
Value starts_or_ends(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, at_end ? "endswith()" : "startswith()", {"affix", "start"}, 1);
  const std::string& text = *self.text();
  std::int64_t start = bound[1] == nullptr ? 0 : integer_of(*bound[1], "start");
  if (start < 0) start = std::max<std::int64_t>(start + character_count(text), 0);
  if (start > character_count(text)) return Value(false);
  const std::string_view rest = std::string_view(text).substr(byte_of_character(text, start));
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = text_of(affix, "the affix");
    return at_end ? rest.ends_with(wanted) : rest.starts_with(wanted);
  };
  const Sequence* several = bound[0]->sequence();
  if (several == nullptr || several->kind != SequenceKind::tuple) return Value(matches(*bound[0]));
  return Value(std::any_of(several->items.begin(), several->items.end(), matches));
}

Value replace(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "replace()", {"old", "new", "count"}, 2);
  const std::int64_t most = bound[2] == nullptr ? -1 : integer_of(*bound[2], "count");
  return Value(replaced(*self.text(), text_of(*bound[0], "what replace() replaces"),
                        text_of(*bound[1], "the replacement"), most));
}

template <bool from_right, bool must>
Value find(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, must ? "index()" : "find()", {"sub", "start", "end"}, 1);
  const std::string& text = *self.text();
  const std::int64_t size = character_count(text);
  const auto place = [&](const Value* value, std::int64_t fallback) {
    if (value == nullptr || value->is_none()) return fallback;
    const std::int64_t at = integer_of(*value, "a position");
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size + 1);
  };
  const std::int64_t start = place(bound[1], 0);
  const std::int64_t end = std::min(place(bound[2], size), size);
  const std::string& wanted = text_of(*bound[0], "what is looked for");
  std::size_t found = std::string_view::npos;
  if (start <= end) {
    const std::size_t begin = byte_of_character(text, start);
    const std::string_view part =
        std::string_view(text).substr(0, byte_of_character(text, end)).substr(begin);
    found = from_right ? part.rfind(wanted) : find_text(part, wanted);
    if (found != std::string_view::npos) {
      return Value(start + character_count(part.substr(0, found)));
    }
  }
  if (must) refuse("substring not found");
  return Value(std::int64_t{-1});
}

Value count(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "count()", {"sub"}, 1);
  const std::string& text = *self.text();
  const std::string& wanted = text_of(*bound[0], "what is counted");
  if (wanted.empty()) return Value(character_count(text) + 1);
  std::int64_t times = 0;
  for (std::size_t at = find_text(text, wanted); at != std::string::npos;
       at = find_text(text, wanted, at + wanted.size())) {
    ++times;
  }
  return Value(times);
}

Value join(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "join()", {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(*bound[0])) {
    if (!first) out += *self.text();
    first = false;
    out += text_of(item, "what join() joins");
    if (out.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
  }
  return Value(std::move(out));
}

Value format(Run&, const Value& self, const Arguments& arguments) {
  return Value(format_fields(*self.text(), arguments));
}

template <bool at_end>
Value without_affix(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, at_end ? "removesuffix()" : "removeprefix()", {"affix"}, 1);
  std::string_view text = *self.text();
  const std::string& affix = text_of(*bound[0], "the affix");
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return Value(text);
}

template <bool from_right>
Value partition(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "partition()", {"sep"}, 1);
  const std::string_view text = *self.text();
  const std::string& separator = text_of(*bound[0], "the separator");
  if (separator.empty()) refuse("empty separator");
  const std::size_t at = from_right ? text.rfind(separator) : find_text(text, separator);
  std::vector<Value> parts;
  if (at != std::string_view::npos) {
    parts = {Value(text.substr(0, at)), Value(separator),
             Value(text.substr(at + separator.size()))};
  } else if (from_right) {
    parts = {Value(""), Value(""), self};
  } else {
    parts = {self, Value(""), Value("")};
  }
  return make_sequence(std::move(parts), SequenceKind::tuple);
}

/// Where white space goes: behind the text, before it, or on both sides.
template <Side side>
Value justified(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "the method", {"width", "fillchar"}, 1);
  const std::int64_t width = integer_of(*bound[0], "the width");
  const std::string fill = bound[1] == nullptr ? " " : text_of(*bound[1], "the fill character");
  if (character_count(fill) != 1) refuse("the fill character must be one character long");
  return Value(padded_text(*self.text(), side, width, fill));
}

Value zfill(Run&, const Value& self, const Arguments& arguments) {
  const auto bound = bind(arguments, "zfill()", {"width"}, 1);
  std::string text = *self.text();
  const std::int64_t width = integer_of(*bound[0], "the width");
  if (width > (1 << 20)) refuse("a width is over {}", 1 << 20);
  const std::int64_t missing = width - character_count(text);
  const bool is_signed = text.starts_with('-') || text.starts_with('+');
  if (missing > 0) text.insert(is_signed ? 1 : 0, static_cast<std::size_t>(missing), '0');
  return Value(std::move(text));
}

constexpr NamedFunction kMethods[] = {
    {"strip", strip<Side::both>},
    {"lstrip", strip<Side::left>},
    {"rstrip", strip<Side::right>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"replace", replace},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"join", join},
    {"format", format},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"ljust", justified<Side::right>},
    {"rjust", justified<Side::left>},
    {"center", justified<Side::both>},
    {"zfill", zfill},
    {"upper", changed<upper_case>},
    {"lower", changed<lowercase>},
    {"casefold", changed<case_folded>},
    {"swapcase", changed<swap_case>},
    {"capitalize", changed<capitalized>},
    {"title", changed<title_case>},
};

template <bool (*holds)(char32_t)>
Value all_are(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "the method", {});
  const std::string& text = *self.text();
  for (std::size_t at = 0; at < text.size();) {
    if (!holds(next_code_point(text, at))) return Value(false);
  }
  return Value(!text.empty());
}

bool is_alphanumeric(char32_t c) {
  return is_alphabetic(c) || is_number_like(c);
}

bool is_ascii(char32_t c) {
  return c < 0x80;
}

/// isupper() and islower(): some characters have a case, and all of those have this one.
template <bool upper>
Value has_case(Run&, const Value& self, const Arguments& arguments) {
  (void)bind(arguments, "the method", {});
  const std::string& text = *self.text();
  bool found = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (upper ? is_lower(c) : is_upper(c)) return Value(false);
    found = found || (upper ? is_upper(c) : is_lower(c));
  }
  return Value(found);
}

Value isascii(Run& run, const Value& self, const Arguments& arguments) {
  return self.text()->empty() ? Value(true) : all_are<is_ascii>(run, self, arguments);
}

constexpr NamedFunction kQuestions[] = {
    {"isspace", all_are<is_python_space>},
    {"isalpha", all_are<is_alphabetic>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isnumeric", all_are<is_number_like>},
    {"isascii", isascii},
    {"isupper", has_case<true>},
    {"islower", has_case<false>},
};

}  // namespace

Function text_method(std::string_view name) {
  return look_up(kMethods, name);
}

Function text_question(std::string_view name) {
  return look_up(kQuestions, name);
}

}  // namespace moesaic::jinja
