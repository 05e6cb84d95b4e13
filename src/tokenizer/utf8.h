#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moesaic {

/// U+FFFD, which stands for bytes that are not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// Whether `text` is UTF-8 throughout (no surrogates, no overlong forms, nothing over U+10FFFF).
[[nodiscard]] bool is_valid_utf8(std::string_view text) noexcept;

/// `text` with each maximal part that is not UTF-8 replaced by U+FFFD, as Python's
/// `errors="replace"` and the Unicode standard (chapter 3.9, "substitution of maximal subparts")
/// do.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

/// Makes UTF-8 of bytes that arrive in parts: what is complete comes out, the bytes of a character
/// that is not are held back.
class Utf8Repair {
 public:
  /// Adds `bytes` and appends to `out` all that no later byte can change.
  void push(std::string_view bytes, std::string& out);
  /// Ends the text: an incomplete character becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string held_;
};

[[nodiscard]] inline unsigned char byte_at(std::string_view text, std::size_t at) noexcept {
  return static_cast<unsigned char>(text[at]);
}

/// Where the character that ends before `at`, which is not 0, begins. `text` must be valid.
[[nodiscard]] inline std::size_t previous_character(std::string_view text,
                                                    std::size_t at) noexcept {
  do --at;
  while ((byte_at(text, at) & 0xC0) == 0x80);
  return at;
}

/// The code point at text[at], and `at` moved behind it. `text` must be valid and `at` inside it.
[[nodiscard]] char32_t next_code_point(std::string_view text, std::size_t& at) noexcept;

/// Bytes of the UTF-8 character that starts with `lead`, which must be a valid first byte.
[[nodiscard]] inline std::size_t utf8_length(char lead) noexcept {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Appends a code point below 0x110000.
void append_utf8(char32_t code_point, std::string& out);

/// The Unicode property White_Space.
[[nodiscard]] bool is_white_space(char32_t code_point) noexcept;

}  // namespace moesaic
