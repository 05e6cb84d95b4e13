#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/jinja/operators.h"
#include "src/jinja/print.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

std::string json_of_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return repr_of_float(value);
}

/// Writes one value after another in a style.
class Dump {
 public:
  explicit Dump(const JsonStyle& style) : style_(style) {}

  void add(const Value& value) {
    if (out_.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
    if (const std::string* text = value.text()) return add_text(*text);
    if (const Dict* dict = value.dict()) return add_dict(*dict);
    const Sequence* items = value.sequence();
    if (items != nullptr &&
        (items->kind == SequenceKind::list || items->kind == SequenceKind::tuple)) {
      return add_list(items->items);
    }
    const auto scalar = scalar_text(value);
    if (!scalar) refuse("Object of type {} is not JSON serializable", value.type_name());
    out_ += *scalar;
  }

  [[nodiscard]] std::string take() && { return std::move(out_); }

 private:
  /// None, bools and numbers.
  static std::optional<std::string> scalar_text(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.boolean()) return *flag ? "true" : "false";
    if (const auto whole = value.integer()) return std::to_string(*whole);
    if (const double* real = value.real()) return json_of_float(*real);
    return std::nullopt;
  }

  void add_text(std::string_view text) {
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) add_character(next_code_point(text, at));
    out_ += '"';
  }

  void add_character(char32_t c) {
    constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const std::size_t known = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
    const auto code = static_cast<std::uint32_t>(c);
    if (known != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[known];
    } else if (code < 0x20 || (style_.ensure_ascii && code >= 0x7f && code < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", code);
    } else if (style_.ensure_ascii && code >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      append_utf8(c, out_);
    }
  }

  void add_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0);
      add(items[i]);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void add_dict(const Dict& dict) {
    if (dict.entries().empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto* left, const auto* right) {
        return less(left->first, right->first);
      });
    }
    out_ += '{';
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      begin_item(i == 0);
      add_key(entries[i]->first);
      out_ += style_.key_separator;
      add(entries[i]->second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  void add_key(const Value& key) {
    if (const std::string* text = key.text()) return add_text(*text);
    const auto scalar = scalar_text(key);
    if (!scalar) refuse("keys must be str, int, float, bool or None, not {}", key.type_name());
    add_text(*scalar);
  }

  void begin_item(bool first) {
    if (!first) out_ += style_.item_separator;
    new_line();
  }

  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  Dump dump(style);
  dump.add(value);
  return std::move(dump).take();
}

}  // namespace moesaic::jinja
