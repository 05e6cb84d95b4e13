#include "src/jinja/string_literal.h"

#include <charconv>

#include "src/jinja/value.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Reads escapes one by one.
class Unescape {
 public:
  explicit Unescape(std::string_view text) : text_(text) {}

  std::string run() && {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        escape(text_[at_++]);
      } else {
        out_ += c;
      }
    }
    return std::move(out_);
  }

 private:
  void escape(char c) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv\n";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const std::size_t known = kLetters.find(c);
    if (known != std::string_view::npos) {
      if (c != '\n') out_ += kMeanings[known];  // a line end behind a backslash goes with it
    } else if (c == 'x' || c == 'u' || c == 'U') {
      code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      --at_;
      code_point(3, 8);
    } else if (c == 'N') {
      refuse("\\N{{...}} in strings is not supported");
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  void code_point(std::size_t most, int base) {
    std::string_view digits = text_.substr(at_, most);
    std::uint32_t value = 0;
    const auto read =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ptr;
    const auto size = static_cast<std::size_t>(read - digits.data());
    if (base == 16 && size < most) refuse("truncated escape in a string");
    at_ += size;
    if (value >= 0x110000 || (value >= 0xD800 && value < 0xE000)) {
      refuse("an escape in a string is no character");
    }
    append_utf8(value, out_);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

/// How far digits reach, with single underscores between them.
std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (is_digit(text[at]) || (text[at] == '_' && at + 1 < text.size() &&
                                 is_digit(text[at + 1]) && at > 0 && is_digit(text[at - 1])))) {
    ++at;
  }
  return at;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

NumberLiteral read_based(std::string_view text, int base) {
  const std::size_t end = text.find_first_not_of("0123456789abcdefABCDEF_", 2);
  const std::string_view all = text.substr(0, end);
  const std::string digits = without_underscores(all.substr(2));
  std::int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || read.ec != std::errc() || read.ptr != digits.data() + digits.size()) {
    refuse("'{}' is not a number", all);
  }
  return {std::to_string(value), all.size(), false};
}

}  // namespace

std::string unescaped(std::string_view text) {
  return Unescape(text).run();
}

NumberLiteral read_number(std::string_view text) {
  const char letter = text[0] == '0' && text.size() > 1 ? text[1] : '\0';
  if (letter == 'x' || letter == 'X') return read_based(text, 16);
  if (letter == 'o' || letter == 'O') return read_based(text, 8);
  if (letter == 'b' || letter == 'B') return read_based(text, 2);
  std::size_t end = digits_end(text, 0);
  bool is_real = false;
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    end = digits_end(text, end + 1);
    is_real = true;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const bool has_sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
    const std::size_t power = end + (has_sign ? 2 : 1);
    if (power < text.size() && is_digit(text[power])) {
      end = digits_end(text, power);
      is_real = true;
    }
  }
  return {without_underscores(text.substr(0, end)), end, is_real};
}

}  // namespace moesaic::jinja
