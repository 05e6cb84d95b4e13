#include "src/jinja/print.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "src/jinja/characters.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

void append_repr(const Value& value, std::string& out);

void check_length(const std::string& out) {
  if (out.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
}

void append_escaped(char32_t c, char quote, std::string& out) {
  switch (c) {
    case U'\n':
      out += "\\n";
      return;
    case U'\r':
      out += "\\r";
      return;
    case U'\t':
      out += "\\t";
      return;
    case U'\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  const auto code = static_cast<std::uint32_t>(c);
  if (c == static_cast<char32_t>(quote)) {
    out += '\\';
    out += quote;
  } else if (is_python_printable(c)) {
    append_utf8(c, out);
  } else if (code < 0x100) {
    out += fmt::format("\\x{:02x}", code);
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", code);
  } else {
    out += fmt::format("\\U{:08x}", code);
  }
}

void append_quoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    append_escaped(next_code_point(text, at), quote, out);
  }
  out += quote;
}

void append_items(const std::vector<Value>& items, std::string& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(items[i], out);
  }
}

void append_sequence(const Sequence& sequence, std::string& out) {
  switch (sequence.kind) {
    case SequenceKind::list:
      out += '[';
      append_items(sequence.items, out);
      out += ']';
      return;
    case SequenceKind::tuple:
      out += '(';
      append_items(sequence.items, out);
      out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    case SequenceKind::range:
      out += sequence.label;
      return;
    case SequenceKind::generator:
      out += "<generator object>";
      return;
    case SequenceKind::keys:
    case SequenceKind::values:
    case SequenceKind::items:
      out += sequence.kind == SequenceKind::keys     ? "dict_keys(["
             : sequence.kind == SequenceKind::values ? "dict_values(["
                                                     : "dict_items([";
      append_items(sequence.items, out);
      out += "])";
      return;
  }
}

void append_dict(const Dict& dict, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(key, out);
    out += ": ";
    append_repr(value, out);
  }
  out += '}';
}

void append_repr(const Value& value, std::string& out) {
  check_length(out);
  if (const std::string* text = value.text()) return append_quoted(*text, out);
  if (const Sequence* items = value.sequence()) return append_sequence(*items, out);
  if (const Dict* dict = value.dict()) return append_dict(*dict, out);
  if (const bool* flag = value.boolean()) {
    out += *flag ? "True" : "False";
  } else if (value.is_none()) {
    out += "None";
  } else if (const auto whole = value.integer()) {
    out += std::to_string(*whole);
  } else if (const double* real = value.real()) {
    out += repr_of_float(*real);
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += fmt::format("<{}>", value.type_name());
  }
}

}  // namespace

std::string repr_of_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));  // -d.ddde-XX
  std::string sign;
  if (text.front() == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const std::string_view power = text.substr(text[mark + 1] == '+' ? mark + 2 : mark + 1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (mark > 2) digits += text.substr(2, mark - 2);
  if (exponent < -4 || exponent >= 16) {
    const std::string rest = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], rest, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.substr(whole);
  return sign + digits.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(value, out);
  check_length(out);
  return out;
}

std::string to_text(const Value& value) {
  if (const std::string* text = value.text()) return *text;
  return value.is_undefined() ? "" : repr(value);
}

}  // namespace moesaic::jinja
