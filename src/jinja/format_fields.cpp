#include <algorithm>

#include "src/jinja/format.h"
#include "src/jinja/operators.h"
#include "src/jinja/print.h"

namespace moesaic::jinja {
namespace {

/// Walks over a text with {fields}.
class FieldFormat {
 public:
  FieldFormat(std::string_view text, const Arguments& arguments)
      : text_(text), arguments_(arguments) {}

  std::string run() && {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      const bool doubled = at_ < text_.size() && text_[at_] == c;
      if ((c == '{' || c == '}') && doubled) {
        ++at_;
        out_ += c;
      } else if (c == '}') {
        refuse("Single '}}' encountered in format string");
      } else if (c == '{') {
        add_field();
      } else {
        out_ += c;
      }
      if (out_.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
    }
    return std::move(out_);
  }

 private:
  void add_field() {
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) refuse("expected '}}' before end of string");
    std::string_view field = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (field.find('{') != std::string_view::npos) refuse("nested format fields are not supported");
    std::string_view spec;
    if (const std::size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const std::size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (field.size() != mark + 2) refuse("Unknown conversion in a format field");
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    Value value = value_of(field);
    if (conversion == 's') value = Value(to_text(value));
    if (conversion == 'r') value = Value(repr(value));
    out_ += spec.empty() ? to_text(value) : formatted(value, parse_format_spec(spec));
  }

  static std::string formatted(const Value& value, const FormatSpec& spec) {
    const bool as_float = std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    if (value.integer() && spec.precision >= 0 && !as_float) {
      refuse("Precision not allowed in integer format specifier");
    }
    return apply_format(value, spec);
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 9 &&
           text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value first_value(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const std::size_t index = name.empty() ? next_++ : std::stoul(std::string(name));
      if (index >= arguments_.positional.size()) {
        refuse("Replacement index {} out of range for positional args tuple", index);
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    refuse("KeyError: '{}'", name);
  }

  /// name.member[index] and so on.
  Value value_of(std::string_view field) {
    std::size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = first_value(field.substr(0, end));
    for (field.remove_prefix(end); !field.empty(); field.remove_prefix(end)) {
      const bool by_index = field[0] == '[';
      field.remove_prefix(1);
      end = std::min(by_index ? field.find(']') : field.find_first_of(".["), field.size());
      const std::string_view key = field.substr(0, end);
      if (by_index && is_number(key)) {
        value = subscript(value, Value(static_cast<std::int64_t>(std::stoll(std::string(key)))));
      } else {
        value = by_index ? subscript(value, Value(key)) : attribute(value, key);
      }
      if (by_index && end < field.size()) ++end;
    }
    return value;
  }

  std::string_view text_;
  const Arguments& arguments_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string format_fields(std::string_view text, const Arguments& arguments) {
  return FieldFormat(text, arguments).run();
}

}  // namespace moesaic::jinja
