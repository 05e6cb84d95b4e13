#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/jinja/characters.h"
#include "src/jinja/filters.h"
#include "src/jinja/methods.h"
#include "src/jinja/named_functions.h"
#include "src/jinja/operators.h"
#include "src/jinja/print.h"
#include "src/tokenizer/unicode.h"

namespace moesaic::jinja {
namespace {

Value defaulted(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "default", {"default_value", "boolean"});
  const bool by_truth = bound[1] != nullptr && bound[1]->truth();
  if (!input.is_undefined() && !(by_truth && !input.truth())) return input;
  return bound[0] == nullptr ? Value("") : *bound[0];
}

Value absolute(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "abs", {});
  const auto number = input.number();
  if (!number) refuse("bad operand type for abs(): '{}'", input.type_name());
  if (input.real() != nullptr) return Value(std::abs(*number));
  return *input.integer() < 0 ? negative(input) : Value(*input.integer());
}

/// int(text) of Python; nullopt if it is none.
std::optional<std::int64_t> whole_number(std::string_view text, int base) {
  text = stripped(text);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (prefix != '\0' && text.size() > 2 && text[0] == '0' && (text[1] | 32) == prefix) {
    text.remove_prefix(2);
  }
  std::string digits(is_negative ? "-" : "");
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '-') return std::nullopt;
    if (text[i] != '_' || i == 0 || i + 1 == text.size()) digits += text[i];
  }
  std::int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

/// float(text) of Python; nullopt if it is none.
std::optional<double> real_number(std::string_view text) {
  text = stripped(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string lower = lowercase(text);
  double value = 0;
  const auto read = std::from_chars(lower.data(), lower.data() + lower.size(), value);
  if (lower.empty() || read.ptr != lower.data() + lower.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) return std::strtod(lower.c_str(), nullptr);
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> truncated(double value) {
  if (!(std::abs(value) < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value to_int(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "int", {"default", "base"});
  const std::int64_t base = bound[1] == nullptr ? 10 : integer_of(*bound[1], "the base");
  if (base < 2 || base > 36) refuse("int() base must be >= 2 and <= 36");
  std::optional<std::int64_t> value;
  if (const std::string* text = input.text()) {
    value = whole_number(*text, static_cast<int>(base));
    if (!value) {
      if (const auto real = real_number(*text)) value = truncated(*real);
    }
  } else if (input.real() != nullptr) {
    value = truncated(*input.real());
  } else {
    value = input.integer();
  }
  if (value) return Value(*value);
  return bound[0] == nullptr ? Value(std::int64_t{0}) : *bound[0];
}

Value to_float(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "float", {"default"});
  const auto value = input.is_text() ? real_number(*input.text()) : input.number();
  if (value) return Value(*value);
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Value rounded(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "round", {"precision", "method"});
  const std::int64_t precision = bound[0] == nullptr ? 0 : integer_of(*bound[0], "the precision");
  const std::string method = bound[1] == nullptr ? "common" : to_text(*bound[1]);
  const auto number = input.number();
  if (!number) refuse("type {} doesn't define __round__ method", input.type_name());
  if (precision < -300 || precision > 300) refuse("the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(*number * scale) / scale);
  if (method == "floor") return Value(std::floor(*number * scale) / scale);
  if (method != "common") refuse("method must be common, ceil or floor");
  if (input.real() == nullptr && precision >= 0) return Value(*input.integer());
  if (precision < 0) {
    const double tens = std::nearbyint(*number * scale) / scale;
    return input.real() != nullptr ? Value(tens) : Value(static_cast<std::int64_t>(tens));
  }
  if (!std::isfinite(*number)) return input;
  // Rounds the exact value, ties to even, as Python does.
  return Value(std::strtod(fmt::format("{:.{}f}", *number, precision).c_str(), nullptr));
}

Value length(Run&, const Value& input, const Arguments& arguments) {
  (void)bind(arguments, "length", {});
  const auto size = length_of(input);
  if (!size) refuse("object of type '{}' has no len()", input.type_name());
  return Value(*size);
}

/// What json.dumps takes for a separator.
std::pair<std::string, std::string> separators_of(const Value& value) {
  const std::vector<Value> pair = items_of(value);
  if (pair.size() != 2) refuse("separators must be two strings");
  return {text_of(pair[0], "a separator"), text_of(pair[1], "a separator")};
}

Value tojson(Run&, const Value& input, const Arguments& arguments) {
  const auto bound =
      bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound[0] != nullptr && bound[0]->truth();
  style.sort_keys = bound[3] != nullptr && bound[3]->truth();
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.indent.emplace();
    if (bound[1]->is_text()) {
      style.indent = *bound[1]->text();
    } else {
      const std::int64_t width = integer_of(*bound[1], "the indent");
      if (width > 1000) refuse("an indent is over 1000");
      style.indent->assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    std::tie(style.item_separator, style.key_separator) = separators_of(*bound[2]);
  }
  return Value(to_json(input, style));
}

/// A member by name, never one of the dict's entries.
Value attr(Run&, const Value& input, const Arguments& arguments) {
  const auto bound = bind(arguments, "attr", {"name"}, 1);
  const std::string& name = text_of(*bound[0], "the name");
  if (input.dict() == nullptr) return attribute(input, name);
  return method_of(input, name).value_or(Value::unknown(name));
}

Value items(Run& run, const Value& input, const Arguments& arguments) {
  if (input.is_undefined()) return make_sequence({}, SequenceKind::generator);
  if (input.dict() == nullptr) refuse("Can only get item pairs from a mapping.");
  const Value all = container_method(input, "items")(run, input, arguments);
  return make_sequence(items_of(all), SequenceKind::generator);
}

constexpr NamedFunction kFilters[] = {
    {"default", defaulted}, {"d", defaulted},   {"abs", absolute},  {"int", to_int},
    {"float", to_float},    {"round", rounded}, {"length", length}, {"count", length},
    {"tojson", tojson},     {"attr", attr},     {"items", items},
};

}  // namespace

Function value_filter(std::string_view name) {
  return look_up(kFilters, name);
}

}  // namespace moesaic::jinja
