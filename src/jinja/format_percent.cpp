#include <cmath>

#include "src/jinja/format.h"
#include "src/jinja/print.h"

namespace moesaic::jinja {
namespace {

/// Walks over a text with %-fields.
class PercentFormat {
 public:
  PercentFormat(std::string_view text, const Value& values) : text_(text), values_(values) {
    const Sequence* sequence = values.sequence();
    if (sequence != nullptr && sequence->kind == SequenceKind::tuple) {
      positional_ = &sequence->items;
    }
  }

  std::string run() && {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '%') {
        out_ += c;
      } else {
        add_field();
      }
      if (out_.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
    }
    const std::size_t given = positional_ != nullptr ? positional_->size() : 1;
    if (next_ < given && (positional_ != nullptr || values_.dict() == nullptr)) {
      refuse("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char take() {
    if (at_ >= text_.size()) refuse("incomplete format");
    return text_[at_++];
  }

  const Value& next_value() {
    const std::size_t given = positional_ != nullptr ? positional_->size() : 1;
    if (next_ >= given) refuse("not enough arguments for format string");
    ++next_;
    return positional_ != nullptr ? (*positional_)[next_ - 1] : values_;
  }

  const Value& named_value() {
    const std::size_t end = text_.find(')', at_);
    if (end == std::string_view::npos) refuse("incomplete format key");
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    const Dict* dict = values_.dict();
    if (dict == nullptr) refuse("format requires a mapping");
    const Value* found = dict->find(name);
    if (found == nullptr) refuse("KeyError: '{}'", name);
    return *found;
  }

  void add_field() {
    const Value* named = nullptr;
    char c = take();
    if (c == '(') {
      named = &named_value();
      c = take();
    }
    std::string spec;
    bool left = false;
    bool zero = false;
    bool alternate = false;
    std::string sign;
    for (; std::string_view("-0+ #").find(c) != std::string_view::npos; c = take()) {
      left = left || c == '-';
      zero = zero || c == '0';
      alternate = alternate || c == '#';
      if (c == '+' || (c == ' ' && sign.empty())) sign = c;
    }
    for (; (c >= '0' && c <= '9') || c == '.'; c = take()) spec += c;
    if (c == '%') {
      out_ += '%';
      return;
    }
    const Value& value = named != nullptr ? *named : next_value();
    const std::string align = left ? "<" : zero ? "" : ">";
    const std::string flags = align + sign + (alternate ? "#" : "") + (zero && !left ? "0" : "");
    out_ += converted(value, c, flags + spec);
  }

  static std::string converted(const Value& value, char type, std::string spec) {
    if (spec.ends_with('.')) spec += '0';
    if (type == 's' || type == 'r' || type == 'c') {
      const std::size_t zeros = spec.find_first_not_of("<>+ #");
      FormatSpec parsed = parse_format_spec(spec);
      if (zeros != std::string::npos) parsed.zero = false;
      parsed.fill = " ";
      parsed.sign = '-';  // flags that say nothing here
      parsed.alternate = false;
      if (type == 'c') parsed.precision = -1;
      if (parsed.align == '\0') parsed.align = '>';
      std::string text = type == 'c'   ? character_of(value)
                         : type == 'r' ? repr(value)
                                       : to_text(value);
      return apply_format(Value(std::move(text)), parsed);
    }
    if (std::string_view("diuxXofFeEgG").find(type) == std::string_view::npos) {
      refuse("unsupported format character '{}'", type);
    }
    if (!value.is_number()) {
      refuse("%{} format: a real number is required, not {}", type, value.type_name());
    }
    if (type == 'i' || type == 'u') type = 'd';
    const FormatSpec parsed = parse_format_spec(spec + type);
    const double* real = value.real();
    if (real == nullptr || std::string_view("dxXo").find(type) == std::string_view::npos) {
      return apply_format(value, parsed);
    }
    if (type != 'd') refuse("%{} format: an integer is required, not float", type);
    if (!(std::abs(*real) < 0x1p63)) refuse("cannot convert a float to an integer");
    return apply_format(Value(static_cast<std::int64_t>(*real)), parsed);
  }

  std::string_view text_;
  const Value& values_;
  const std::vector<Value>* positional_ = nullptr;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string format_percent(std::string_view text, const Value& values) {
  return PercentFormat(text, values).run();
}

}  // namespace moesaic::jinja
