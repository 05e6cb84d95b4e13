#pragma once

#include <string>
#include <string_view>

namespace moesaic {

/// Members of a class that are what \w means to Rust's regex crate, with which the `tokenizers`
/// library finds the words of a Whitespace pre-tokenizer and next to added tokens.
inline constexpr std::string_view kRustWordMembers =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";

/// A pattern of tokenizer.json as PCRE2 has to see it. Such patterns are in the Ruby syntax of
/// Oniguruma, which the `tokenizers` library uses. What differs is rewritten:
///
/// - classes inside classes and `&&` become groups and lookaheads;
/// - `\w`, `\b`, `\h`, `\v`, POSIX classes and `\uHHHH` get Oniguruma's meaning;
/// - so do properties with the names of POSIX classes, such as `\p{Alnum}`;
/// - `\p{Han}` and other scripts mean the script, not its extensions;
/// - `(?m)` becomes `(?s)`, since `^` and `$` always match at lines there.
///
/// `where` stands in messages. Throws Error{file} for a class that does not end.
[[nodiscard]] std::string pcre2_pattern(std::string_view pattern, const std::string& where);

}  // namespace moesaic
