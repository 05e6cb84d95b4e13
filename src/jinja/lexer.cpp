#include "src/jinja/lexer.h"

#include <algorithm>

#include "src/jinja/characters.h"
#include "src/jinja/string_literal.h"
#include "src/jinja/value.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

/// One kind of line end, and the last one dropped.
std::string with_plain_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      out += '\n';
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    } else {
      out += source[at];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(const std::string& source, int& line) : source_(source), line_(line) {}

  std::vector<Token> run() && {
    while (at_ < source_.size()) outside();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }
  [[nodiscard]] bool starts_with(std::string_view text) const { return rest().starts_with(text); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t bytes) {
    const std::string_view passed = rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) line_starts_ = passed.back() == '\n';
    at_ += passed.size();
  }

  void skip_space() {
    const std::string_view all = rest();
    advance(all.size() - stripped(all, Side::left).size());
  }

  /// The next tag; npos if there is none.
  [[nodiscard]] std::size_t find_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() &&
          (source_[at + 1] == '%' || source_[at + 1] == '{' || source_[at + 1] == '#')) {
        return at;
      }
    }
    return std::string::npos;
  }

  /// Data in front of a tag at `end`, which has a sign for white space or none; cuts what the sign
  /// or lstrip_blocks say.
  void add_data(std::size_t end, char sign, bool is_variable) {
    const std::string_view data = std::string_view(source_).substr(at_, end - at_);
    std::string_view kept = data;
    if (sign == '-') {
      kept = stripped(data, Side::right);
    } else if (sign != '+' && !is_variable) {
      const std::size_t line_end = data.rfind('\n');
      const std::size_t begin = line_end == std::string_view::npos ? 0 : line_end + 1;
      const bool at_line_start = begin > 0 || line_starts_;
      if (at_line_start && stripped(data.substr(begin)).empty()) kept = data.substr(0, begin);
    }
    if (!kept.empty()) add(TokenKind::data, std::string(kept));
    advance(data.size());
  }

  /// The sign at `at`: '-', '+' or none.
  [[nodiscard]] char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void outside() {
    const std::size_t tag = find_tag();
    if (tag == std::string::npos) {
      add(TokenKind::data, std::string(rest()));
      advance(rest().size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(tag, sign, kind == '{');
    if (kind == '#') return comment(sign);
    if (kind == '%' && raw_block()) return;
    add(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, "");
    advance(sign == '\0' ? 2 : 3);
    inside(kind == '%');
  }

  void comment(char sign) {
    const std::size_t begin = at_ + (sign == '\0' ? 2 : 3);
    const std::size_t end = source_.find("#}", begin);
    if (end == std::string::npos) refuse("Missing end of comment tag");
    const char before = end > begin ? source_[end - 1] : '\0';
    advance(end - at_);
    close(before == '-' || before == '+' ? before : '\0', 2);
  }

  /// Passes a tag's end of `bytes`, and what its sign or trim_blocks cuts behind it.
  void close(char sign, std::size_t bytes) {
    advance(bytes);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && starts_with("\n")) {
      advance(1);
    }
  }

  /// "{% raw %}" and all up to its end, if one stands here.
  bool raw_block() {
    std::size_t at = at_ + (sign_at(at_ + 2) == '\0' ? 2 : 3);
    const auto skip = [&] {
      while (at < source_.size() &&
             (source_[at] == ' ' || source_[at] == '\n' || source_[at] == '\t')) {
        ++at;
      }
    };
    skip();
    if (std::string_view(source_).substr(at, 3) != "raw") return false;
    at += 3;
    skip();
    const bool cuts = at < source_.size() && source_[at] == '-';
    if (cuts) ++at;
    if (std::string_view(source_).substr(at, 2) != "%}") return false;
    advance(at + 2 - at_);
    if (cuts) skip_space();
    return raw_data();
  }

  bool raw_data() {
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t at = tag + (sign == '\0' ? 2 : 3);
      at = source_.find_first_not_of(" \t\n", at);
      if (at == std::string::npos || source_.compare(at, 6, "endraw") != 0) continue;
      at = source_.find_first_not_of(" \t\n", at + 6);
      if (at == std::string::npos) break;
      const char end_sign = sign_at(at);
      if (end_sign != '\0') ++at;
      if (source_.compare(at, 2, "%}") != 0) continue;
      add_data(tag, sign, false);
      advance(at - at_);
      close(end_sign, 2);
      return true;
    }
    refuse("Missing end of raw directive");
  }

  /// The tokens of a tag up to its end.
  void inside(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    std::vector<char> open;
    while (true) {
      skip_space();
      if (at_ >= source_.size()) refuse("unexpected end of template inside a tag");
      const char sign = sign_at(at_);
      const bool plus_counts = is_block || sign != '+';
      const std::size_t skipped = sign != '\0' && plus_counts ? 1 : 0;
      if (open.empty() && rest().substr(skipped).starts_with(end)) {
        add(is_block ? TokenKind::block_end : TokenKind::variable_end, "");
        advance(skipped);
        if (is_block || sign == '-') {
          close(sign, 2);
        } else {
          advance(2);
        }
        return;
      }
      add_token(open);
    }
  }

  void add_token(std::vector<char>& open) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return add_string(c);
    if (is_digit_char(c)) return add_number();
    if (const std::size_t size = name_size(); size > 0) {
      add(TokenKind::name, source_.substr(at_, size));
      return advance(size);
    }
    add_sign(open);
  }

  /// Bytes of the name that begins here; 0 if none does.
  [[nodiscard]] std::size_t name_size() const {
    std::size_t end = at_;
    while (end < source_.size()) {
      std::size_t next = end;
      const char32_t c = next_code_point(source_, next);
      if (end == at_ ? !begins_name(c) : !continues_name(c)) break;
      end = next;
    }
    return end - at_;
  }

  void add_sign(std::vector<char>& open) {
    constexpr std::string_view kSigns[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                   [&](std::string_view text) { return starts_with(text); });
    if (sign == std::end(kSigns)) {
      refuse("unexpected char '{}'", rest().substr(0, utf8_length(source_[at_])));
    }
    const char c = sign->front();
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) refuse("unexpected '{}'", c);
      open.pop_back();
    }
    add(TokenKind::sign, std::string(*sign));
    advance(sign->size());
  }

  void add_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("unexpected char '{}': a string has no end", quote);
    add(TokenKind::text, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  void add_number() {
    const NumberLiteral number = read_number(rest());
    add(number.is_real ? TokenKind::real : TokenKind::integer, number.text);
    advance(number.bytes);
  }

  const std::string& source_;
  int& line_;
  std::size_t at_ = 0;
  bool line_starts_ = true;  // what is next stands at the start of a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, int& line) {
  line = 1;
  if (!is_valid_utf8(source)) refuse("is not UTF-8");
  const std::string text = with_plain_lines(source);
  return Lexer(text, line).run();
}

}  // namespace moesaic::jinja
