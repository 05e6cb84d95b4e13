#include "src/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "src/tokenizer/unicode.h"
#include "src/tokenizer/utf8.h"

namespace moesaic::jinja {
namespace {

constexpr char32_t kSharpS = 0xDF;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void append_lower(char32_t c, std::string& out) {
  std::string character;
  append_utf8(c, character);
  out += lowercase(character);
}

void append_title(char32_t c, std::string& out) {
  if (c == kSharpS) {
    out += "Ss";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

template <typename Append>
std::string mapped(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append(next_code_point(text, at), out);
  return out;
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

std::vector<char32_t> sorted_characters(std::string_view text) {
  std::vector<char32_t> all;
  for (std::size_t at = 0; at < text.size();) all.push_back(next_code_point(text, at));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

std::int64_t character_count(std::string_view text) {
  std::int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

std::size_t byte_of_character(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += utf8_length(text[at]);
  return at;
}

std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

bool is_python_space(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || is_white_space(c);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_python_printable(char32_t c) {
  if (c == U' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alphabetic(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  // Superscripts, subscripts and digits in circles are digits too.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}

bool is_number_like(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO;
}

bool begins_name(char32_t c) {
  return c == U'_' || is_alphabetic(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool continues_name(char32_t c) {
  constexpr char32_t kMiddleDot = 0xB7;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return begins_name(c) || c == kMiddleDot;
  }
}

// Numerals and letters in circles have a case too, if they have a partner in the other one.
bool is_upper(char32_t c) {
  const utf8proc_category_t found = category(c);
  if (found == UTF8PROC_CATEGORY_LU) return true;
  if (found == UTF8PROC_CATEGORY_LT) return false;
  return utf8proc_tolower(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c);
}

bool is_lower(char32_t c) {
  const utf8proc_category_t found = category(c);
  if (found == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA) return true;
  if (found == UTF8PROC_CATEGORY_LT) return false;
  return utf8proc_toupper(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c);
}

void append_upper(char32_t c, std::string& out) {
  if (c == kSharpS) {
    out += "SS";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

std::string upper_case(std::string_view text) {
  return mapped(text, append_upper);
}

std::string case_folded(std::string_view text) {
  return mapped(text, [](char32_t c, std::string& out) {
    std::array<utf8proc_int32_t, 4> folded{};  // three at most
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded.data(), std::ssize(folded),
                                UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      append_utf8(static_cast<char32_t>(folded[static_cast<std::size_t>(i)]), out);
    }
  });
}

std::string swap_case(std::string_view text) {
  return mapped(text, [](char32_t c, std::string& out) {
    is_upper(c) ? append_lower(c, out) : append_upper(c, out);
  });
}

std::string capitalized(std::string_view text) {
  return mapped(text, [](char32_t c, std::string& out) {
    out.empty() ? append_title(c, out) : append_lower(c, out);
  });
}

std::string title_case(std::string_view text) {
  bool inside = false;
  return mapped(text, [&](char32_t c, std::string& out) {
    inside ? append_lower(c, out) : append_title(c, out);
    inside = is_cased(c);
  });
}

std::string_view stripped(std::string_view text, Side side, std::optional<std::string_view> which) {
  const std::vector<char32_t> chosen = sorted_characters(which.value_or(""));
  const auto goes = [&](char32_t c) {
    return which ? std::binary_search(chosen.begin(), chosen.end(), c) : is_python_space(c);
  };
  while (side != Side::right && !text.empty()) {
    std::size_t next = 0;
    if (!goes(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (side != Side::left && !text.empty()) {
    const std::size_t begin = previous_character(text, text.size());
    std::size_t next = begin;
    if (!goes(next_code_point(text, next))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace moesaic::jinja
