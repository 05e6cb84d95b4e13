#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moesaic {

// The tables are those of utf8proc (Unicode 15 in version 2.8). The `tokenizers` library has
// others: NFC agrees for every character, but its NFD, NFKC and NFKD leave characters newer than
// Unicode 12 as they are, its Lowercase knows a few newer ones, and its Punctuation lacks some.

/// Unicode's canonical (NFC, NFD) and compatibility (NFKC, NFKD) forms.
enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// `text`, which must be UTF-8, in a normal form. Throws Error{resource} if memory runs out.
[[nodiscard]] std::string normalized(std::string_view text, NormalForm form);

/// Each character in lower case by itself, without regard to its neighbours (U+03A3 is always
/// U+03C3).
[[nodiscard]] std::string lowercase(std::string_view text);

/// General categories Nd, Nl and No.
[[nodiscard]] bool is_numeric(char32_t code_point) noexcept;
/// General categories P*, and the ASCII characters that are neither letters, digits, space nor
/// controls.
[[nodiscard]] bool is_punctuation(char32_t code_point) noexcept;

/// `text` with every character that is newer than the Unicode tables of the libraries replaced by
/// an older one of the same length and general category (unicode_additions.h); nothing if there is
/// none. U+180E, which PCRE2 alone takes for white space, is replaced by U+200B.
[[nodiscard]] std::optional<std::string> with_stand_ins(std::string_view text);

}  // namespace moesaic
