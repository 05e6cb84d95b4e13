#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moesaic::jinja {

// Texts as Python's str sees them: sequences of code points. All texts are UTF-8. The tables are
// those of utf8proc; upper and title case map character by character (but ß to SS).

[[nodiscard]] std::int64_t character_count(std::string_view text);
/// Where the character number `index` begins; the end of the text if it has fewer.
[[nodiscard]] std::size_t byte_of_character(std::string_view text, std::int64_t index);

/// Where `wanted` stands in `text` at or behind `from`; npos if nowhere. Takes time in proportion
/// to their lengths, whatever they are.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view wanted,
                                    std::size_t from = 0);

[[nodiscard]] bool is_python_space(char32_t c);      ///< str.isspace, what strip() strips
[[nodiscard]] bool is_line_end(char32_t c);          ///< where splitlines() splits
[[nodiscard]] bool is_python_printable(char32_t c);  ///< what repr() does not escape
[[nodiscard]] bool is_alphabetic(char32_t c);
[[nodiscard]] bool is_decimal(char32_t c);
[[nodiscard]] bool is_digit(char32_t c);
[[nodiscard]] bool is_number_like(char32_t c);
/// What Python's names begin with, and consist of: XID_Start and XID_Continue, but for some forty
/// characters that their categories do not tell of.
[[nodiscard]] bool begins_name(char32_t c);
[[nodiscard]] bool continues_name(char32_t c);
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);

[[nodiscard]] std::string upper_case(std::string_view text);
/// str.casefold().
[[nodiscard]] std::string case_folded(std::string_view text);
[[nodiscard]] std::string swap_case(std::string_view text);
[[nodiscard]] std::string capitalized(std::string_view text);
/// str.title(): a letter behind what is none in upper case, others in lower case.
[[nodiscard]] std::string title_case(std::string_view text);
/// The case of one character, appended.
void append_upper(char32_t c, std::string& out);

enum class Side { left, right, both };
/// Without the characters of `which` (white space if not given) at its ends.
[[nodiscard]] std::string_view stripped(std::string_view text, Side side = Side::both,
                                        std::optional<std::string_view> which = std::nullopt);

}  // namespace moesaic::jinja
