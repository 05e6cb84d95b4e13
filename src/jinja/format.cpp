#include "src/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/jinja/characters.h"
#include "src/jinja/print.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 10000;

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

/// Digits at the front of `spec`, taken off; -1 if there are none.
std::int64_t take_number(std::string_view& spec) {
  std::int64_t number = -1;
  while (!spec.empty() && spec[0] >= '0' && spec[0] <= '9') {
    number = std::max<std::int64_t>(number, 0) * 10 + (spec[0] - '0');
    if (number > kMaxWidth) refuse("a width or precision is over {}", kMaxWidth);
    spec.remove_prefix(1);
  }
  return number;
}

bool take(std::string_view& spec, char c) {
  if (!spec.starts_with(c)) return false;
  spec.remove_prefix(1);
  return true;
}

std::string padded(std::string text, std::string_view sign, const FormatSpec& spec, char align) {
  const std::int64_t missing =
      spec.width - character_count(text) - static_cast<std::int64_t>(sign.size());
  if (missing <= 0) return std::string(sign) + text;
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before;
  std::string after;
  for (std::int64_t i = 0; i < left; ++i) before += spec.fill;
  for (std::int64_t i = left; i < missing; ++i) after += spec.fill;
  if (align == '=') return std::string(sign) + before + text;
  return before + std::string(sign) + text + after;
}

bool is_one_of(char type, std::string_view types) {
  return types.find(type) != std::string_view::npos;
}

/// Decimal digits by three, others by four, with zeros before them up to a width.
std::string grouped(std::string digits, const FormatSpec& spec, std::int64_t width) {
  const bool by_four = is_one_of(spec.type, "xXob");
  const std::size_t size = by_four ? 4 : 3;
  std::size_t end = digits.size();
  if (!by_four) end = std::min(digits.find_first_not_of("0123456789"), end);
  const std::size_t rest = digits.size() - end;
  std::size_t wanted = end;
  while (std::cmp_less(wanted + (wanted - 1) / size + rest, width)) ++wanted;
  digits.insert(0, wanted - end, '0');
  for (std::size_t at = wanted; at > size; at -= size) digits.insert(at - size, 1, spec.grouping);
  return digits;
}

std::string digits_of_integer(std::uint64_t value, char type) {
  switch (type) {
    case 'x':
      return fmt::format("{:x}", value);
    case 'X':
      return fmt::format("{:X}", value);
    case 'o':
      return fmt::format("{:o}", value);
    case 'b':
      return fmt::format("{:b}", value);
    default:
      return fmt::format("{}", value);
  }
}

/// As with the type 'g', but never without a point or an exponent.
std::string digits_without_type(double value, int precision) {
  std::string text = fmt::format("{:.{}g}", value, precision);
  if (text.find_first_not_of("0123456789") != std::string::npos) return text;
  if (std::ssize(text) < precision) return text + ".0";
  text = fmt::format("{:.{}e}", value, precision - 1);
  const std::size_t mark = text.find('e');
  const std::string digits = text.substr(0, mark);
  const std::size_t last = digits.find_last_not_of(".0");
  return digits.substr(0, std::max<std::size_t>(last + 1, 1)) + text.substr(mark);
}

std::string digits_of_float(double value, const FormatSpec& spec) {
  const auto formatted = [&](double number, char type, int digits) {
    const std::string field = fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", digits, type);
    std::string text = fmt::format(fmt::runtime(field), number);
    const std::size_t point = text.find('.');
    if ((type != 'f' && type != 'F') || point == std::string::npos) return text;
    return text.append(point + 1 + static_cast<std::size_t>(digits) - text.size(),
                       '0');  // beyond what fmt writes
  };
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  switch (spec.type) {
    case 'f':
    case 'F':
    case 'e':
    case 'E':
      return formatted(value, spec.type, precision);
    case '%':
      return formatted(value * 100.0, 'f', precision) + "%";
    case '\0':
      if (spec.precision < 0) return repr_of_float(value);
      if (spec.alternate) return formatted(value, 'g', std::max(precision, 1));
      return digits_without_type(value, std::max(precision, 1));
    case 'n':
      return formatted(value, 'g', std::max(precision, 1));
    case 'g':
    case 'G':
      return formatted(value, spec.type, std::max(precision, 1));
    default:
      refuse("Unknown format code '{}' for object of type 'float'", spec.type);
  }
}

/// What stands before the digits of a number.
std::string sign_of(bool is_negative, const FormatSpec& spec, bool is_whole) {
  std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (is_whole && spec.alternate && is_one_of(spec.type, "xXob")) sign += {'0', spec.type};
  return sign;
}

std::string format_number(const Value& value, const FormatSpec& spec) {
  if (spec.type != '\0' && !is_one_of(spec.type, "dxXobneEfFgG%")) {
    refuse("Unknown format code '{}' for object of type '{}'", spec.type, value.type_name());
  }
  if (spec.grouping != '\0' && is_one_of(spec.type, spec.grouping == ',' ? "xXobn" : "n")) {
    refuse("Cannot specify '{}' with '{}'.", spec.grouping, spec.type);
  }
  const bool whole =
      value.integer().has_value() && (spec.type == '\0' || is_one_of(spec.type, "dxXobn"));
  bool is_negative = false;
  std::string digits;
  if (whole) {
    const std::int64_t number = *value.integer();
    is_negative = number < 0;
    const auto bits = static_cast<std::uint64_t>(number);
    digits = digits_of_integer(is_negative ? 0 - bits : bits, spec.type);
    const std::int64_t missing = spec.precision - std::ssize(digits);
    if (missing > 0) digits.insert(0, static_cast<std::size_t>(missing), '0');
  } else {
    const double number = *value.number();
    is_negative = std::signbit(number) && !std::isnan(number);
    digits = digits_of_float(std::abs(number), spec);
  }
  const std::string sign = sign_of(is_negative, spec, whole);
  const char align = spec.align != '\0' ? spec.align : spec.zero ? '=' : '>';
  if (spec.grouping != '\0') {
    const bool has_zeros = align == '=' && spec.fill == "0";  // which are grouped, too
    digits = grouped(std::move(digits), spec, has_zeros ? spec.width - std::ssize(sign) : 0);
  }
  return padded(std::move(digits), sign, spec, align);
}

}  // namespace

FormatSpec parse_format_spec(std::string_view spec) {
  FormatSpec parsed;
  const std::string_view whole = spec;
  const std::size_t first = spec.empty() ? 0 : utf8_length(spec[0]);
  const bool has_fill = spec.size() > first && is_align(spec[first]);
  if (has_fill) {
    parsed.fill = spec.substr(0, first);
    parsed.align = spec[first];
    spec.remove_prefix(first + 1);
  } else if (!spec.empty() && is_align(spec[0])) {
    parsed.align = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty() && std::string_view("+- ").find(spec[0]) != std::string_view::npos) {
    parsed.sign = spec[0];
    spec.remove_prefix(1);
  }
  parsed.alternate = take(spec, '#');
  if (take(spec, '0')) {
    parsed.zero = true;
    if (!has_fill) parsed.fill = "0";
  }
  parsed.width = std::max<std::int64_t>(take_number(spec), 0);
  if (take(spec, ',')) parsed.grouping = ',';
  if (take(spec, '_')) parsed.grouping = '_';
  if (take(spec, '.')) {
    parsed.precision = take_number(spec);
    if (parsed.precision < 0) refuse("Format specifier '{}' lacks a precision", whole);
  }
  if (!spec.empty()) {
    parsed.type = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty()) refuse("Invalid format specifier '{}'", whole);
  return parsed;
}

std::string character_of(const Value& value) {
  if (value.is_text() && character_count(*value.text()) == 1) return *value.text();
  if (!value.integer()) refuse("%c requires an integer or a character");
  const std::int64_t code = *value.integer();
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < 0 || code > 0x10FFFF || is_surrogate) refuse("{} is no character", code);
  std::string out;
  append_utf8(static_cast<char32_t>(code), out);
  return out;
}

std::string apply_format(const Value& value, const FormatSpec& spec) {
  if (value.is_number() && spec.type != 'c') return format_number(value, spec);
  if (!value.is_text() && !value.is_number()) {
    refuse("unsupported format string passed to {}.__format__", value.type_name());
  }
  if (value.is_text() && spec.type != '\0' && spec.type != 's') {
    refuse("Unknown format code '{}' for object of type 'str'", spec.type);
  }
  if (value.is_text() && spec.align == '=') refuse("'=' alignment is not for texts");
  const bool is_plain =
      spec.sign == '-' && spec.grouping == '\0' && !(value.is_text() && spec.alternate);
  if (!is_plain) refuse("a sign, '#' and grouping are not for texts and characters");
  std::string text = value.is_text() ? *value.text() : character_of(value);
  if (spec.precision >= 0) text.resize(byte_of_character(text, spec.precision));
  const char usual = value.is_text() ? '<' : '>';
  return padded(std::move(text), "", spec, spec.align == '\0' ? usual : spec.align);
}

}  // namespace moesaic::jinja
