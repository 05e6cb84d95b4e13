#include "launch/options/shell_word.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace moesaic {

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "_-./=:,+@%";
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           kPlain.find(c) != std::string_view::npos;
  });
  if (is_plain) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace moesaic
