#include "src/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "src/tokenizer/unicode_additions.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

constexpr char32_t kMongolianVowelSeparator = 0x180E;
constexpr char32_t kZeroWidthSpace = 0x200B;

/// Whether every byte is below `limit`: no character below U+0080 changes in any form, none below
/// U+0300 in NFC.
bool all_bytes_below(std::string_view text, unsigned char limit) {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return static_cast<unsigned char>(c) < limit; });
}

char32_t stand_in(char32_t code_point) {
  if (code_point == kMongolianVowelSeparator) return kZeroWidthSpace;
  const auto additions = unicode_additions();
  const auto found =
      std::lower_bound(additions.begin(), additions.end(), code_point,
                       [](const UnicodeAddition& range, char32_t c) { return range.last < c; });
  if (found == additions.end() || code_point < found->first) return code_point;
  return found->stand_in;
}

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(stand_in(code_point)));
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  // 0xCC is the first byte of U+0300.
  if (all_bytes_below(text, form == NormalForm::nfc ? 0xCC : 0x80)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  require(bytes >= 0, ErrorKind::resource, "Unicode normalization of {} bytes failed: {}",
          text.size(), utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(bytes)};
}

std::string lowercase(std::string_view text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one character whose lower case is two
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code_point = next_code_point(text, at);
    if (code_point == kCapitalIWithDot) {
      out += "i\xCC\x87";
    } else {
      append_utf8(
          static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))), out);
    }
  }
  return out;
}

bool is_numeric(char32_t code_point) noexcept {
  const utf8proc_category_t found = category(code_point);
  return found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80)
    return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') &&
           !((c | 32U) >= 'a' && (c | 32U) <= 'z');
  const utf8proc_category_t found = category(c);
  return found >= UTF8PROC_CATEGORY_PC && found <= UTF8PROC_CATEGORY_PO;
}

std::optional<std::string> with_stand_ins(std::string_view text) {
  std::optional<std::string> changed;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    if (static_cast<unsigned char>(text[at]) < 0xE0) {  // all are three or four bytes long
      ++at;
      continue;
    }
    const char32_t code_point = next_code_point(text, at);
    const char32_t older = stand_in(code_point);
    if (older == code_point) continue;
    if (!changed) changed.emplace(text);
    std::string bytes;
    append_utf8(older, bytes);
    changed->replace(start, at - start, bytes);
  }
  return changed;
}

}  // namespace moesaic
