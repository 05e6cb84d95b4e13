#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moesaic {

// Lines of files and pipes of texts and JSON. Only \n ends a line; the last may do without. A \r
// before it is no part of the line, nor is a byte order mark part of the first, which those who
// read bytes take off (read_file_bytes, LineReader). Whether lines are UTF-8 and have no NUL is not
// looked at here: whole files are refused before they are cut (read_utf8_file), prompts one by one
// (PromptLines), and Json::parse takes neither.

/// What a line of an input that is read piece by piece may have: more than any context.
inline constexpr std::size_t kMostLineBytes = std::size_t{256} << 20;

/// A line without its end.
struct TextLine {
  std::string_view text;
  std::int64_t number = 0;  // from 1
  std::int64_t end = 0;     // bytes of the whole up to here, with the line's end

  /// "FILE line 3".
  [[nodiscard]] std::string where(std::string_view file) const;
};

/// Whether there are but spaces, tabs and \r.
[[nodiscard]] bool is_blank(std::string_view line) noexcept;

/// `line`, which is cut at its \n, without a \r before that.
[[nodiscard]] std::string_view without_return(std::string_view line) noexcept;

/// The lines of a text, which must outlive this.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : text_(text) {}

  /// The next line; none after the last.
  [[nodiscard]] std::optional<TextLine> next();
  /// The next one that is not blank.
  [[nodiscard]] std::optional<TextLine> next_filled();

 private:
  std::string_view text_;
  std::size_t begin_ = 0;  // of the next line
  std::int64_t number_ = 0;
};

}  // namespace moesaic
