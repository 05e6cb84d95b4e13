#include "src/jinja/text_functions.h"

#include <algorithm>

#include "src/jinja/characters.h"
#include "src/jinja/print.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

/// How far the words at the front of `text` (at its back, from the right) reach.
std::size_t word_length(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (is_python_space(next_code_point(text, at))) return begin;
  }
  return text.size();
}

std::size_t last_word_begin(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0) {
    std::size_t begin = at - 1;
    while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    std::size_t next = begin;
    if (is_python_space(next_code_point(text, next))) break;
    at = begin;
  }
  return at;
}

std::vector<Value> split_words(std::string_view text, std::int64_t most) {
  std::vector<Value> parts;
  text = stripped(text, Side::left);
  while (!text.empty()) {
    if (most >= 0 && std::ssize(parts) == most) {
      parts.emplace_back(text);
      break;
    }
    const std::size_t length = word_length(text);
    parts.emplace_back(text.substr(0, length));
    text = stripped(text.substr(length), Side::left);
  }
  return parts;
}

std::vector<Value> split_words_from_right(std::string_view text, std::int64_t most) {
  if (most < 0) return split_words(text, -1);
  std::vector<Value> parts;
  text = stripped(text, Side::right);
  while (!text.empty()) {
    if (std::ssize(parts) == most) {
      parts.emplace_back(text);
      break;
    }
    const std::size_t begin = last_word_begin(text);
    parts.emplace_back(text.substr(begin));
    text = stripped(text.substr(0, begin), Side::right);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::vector<Value> split_text(std::string_view text, std::optional<std::string_view> separator,
                              std::int64_t most, bool from_right) {
  if (!separator) return from_right ? split_words_from_right(text, most) : split_words(text, most);
  if (separator->empty()) refuse("empty separator");
  std::vector<Value> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t at = from_right ? text.rfind(*separator) : find_text(text, *separator);
    if (at == std::string_view::npos) break;
    const std::string_view behind = text.substr(at + separator->size());
    parts.emplace_back(from_right ? behind : text.substr(0, at));
    text = from_right ? text.substr(0, at) : behind;
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> lines_of(std::string_view text, bool keep_ends) {
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_end(c)) continue;
    if (c == U'\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view by,
                     std::int64_t most) {
  std::string out;
  std::size_t covered = 0;
  std::int64_t times = 0;
  for (; most < 0 || times < most; ++times) {
    if (out.size() > kMaxText) refuse("a text grows over {} bytes", kMaxText);
    if (old.empty()) {
      // Before every character, and at the end.
      if (times > 0) {
        if (covered >= text.size()) break;
        const std::size_t size = utf8_length(text[covered]);
        out += text.substr(covered, size);
        covered += size;
      }
    } else {
      const std::size_t at = find_text(text, old, covered);
      if (at == std::string_view::npos) break;
      out += text.substr(covered, at - covered);
      covered = at + old.size();
    }
    out += by;
  }
  return out += text.substr(covered);
}

std::string padded_text(std::string_view text, Side side, std::int64_t width,
                        std::string_view fill) {
  constexpr std::int64_t kMaxPadding = 1 << 20;
  if (width > kMaxPadding) refuse("a width is over {}", kMaxPadding);
  const std::int64_t missing = std::max<std::int64_t>(width - character_count(text), 0);
  const std::int64_t left = side == Side::left    ? missing
                            : side == Side::right ? 0
                                                  : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace moesaic::jinja
