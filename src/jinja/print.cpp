#include "src/jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/jinja/characters.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

/// What is printed so far, and the namespaces that the next value is inside of.
struct Printing {
  std::string out;
  std::vector<const Object*> open;
};

void append_repr(const Value& value, Printing& printing);

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

void append_items(const std::vector<Value>& items, Printing& printing) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) printing.out += ", ";
    append_repr(items[i], printing);
  }
}

void append_sequence(const Sequence& sequence, Printing& printing) {
  switch (sequence.kind) {
    case SequenceKind::list:
      printing.out += '[';
      append_items(sequence.items, printing);
      printing.out += ']';
      return;
    case SequenceKind::tuple:
      printing.out += '(';
      append_items(sequence.items, printing);
      printing.out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    case SequenceKind::range:
      printing.out += fmt::format("range({}, {}", sequence.ends.start, sequence.ends.stop);
      printing.out += sequence.ends.step == 1 ? ")" : fmt::format(", {})", sequence.ends.step);
      return;
    case SequenceKind::generator:
      printing.out += "<generator object>";
      return;
    case SequenceKind::keys:
    case SequenceKind::values:
    case SequenceKind::items:
      printing.out += sequence.kind == SequenceKind::keys     ? "dict_keys(["
                      : sequence.kind == SequenceKind::values ? "dict_values(["
                                                              : "dict_items([";
      append_items(sequence.items, printing);
      printing.out += "])";
      return;
  }
}

void append_dict(const Dict& dict, Printing& printing) {
  printing.out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) printing.out += ", ";
    first = false;
    append_repr(key, printing);
    printing.out += ": ";
    append_repr(value, printing);
  }
  printing.out += '}';
}

void append_object(const Object& object, Printing& printing) {
  constexpr std::size_t kMaxDepth = 20;
  auto& open = printing.open;
  if (object.members() == nullptr) {
    printing.out += fmt::format("<{}>", object.type_name());
  } else if (std::find(open.begin(), open.end(), &object) != open.end()) {
    printing.out += "<Namespace {...}>";
  } else {
    if (open.size() == kMaxDepth) refuse("prints namespaces more than {} levels deep", kMaxDepth);
    open.push_back(&object);
    printing.out += "<Namespace ";
    append_dict(*object.members(), printing);
    printing.out += '>';
    open.pop_back();
  }
}

void append_repr(const Value& value, Printing& printing) {
  check_length(printing.out);
  if (const std::string* text = value.text()) return append_quoted(*text, printing.out);
  if (const Sequence* items = value.sequence()) return append_sequence(*items, printing);
  if (const Dict* dict = value.dict()) return append_dict(*dict, printing);
  if (const Object* object = value.object()) return append_object(*object, printing);
  if (const bool* flag = value.boolean()) {
    printing.out += *flag ? "True" : "False";
  } else if (value.is_none()) {
    printing.out += "None";
  } else if (const auto whole = value.integer()) {
    printing.out += std::to_string(*whole);
  } else if (const double* real = value.real()) {
    printing.out += repr_of_float(*real);
  } else if (value.is_undefined()) {
    printing.out += "Undefined";
  } else {
    printing.out += fmt::format("<{}>", value.type_name());
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
  Printing printing;
  append_repr(value, printing);
  check_length(printing.out);
  return std::move(printing.out);
}

std::string to_text(const Value& value) {
  if (const std::string* text = value.text()) return *text;
  return value.is_undefined() ? "" : repr(value);
}

}  // namespace moesaic::jinja
