#include "base/text_lines.h"

#include <fmt/core.h>

#include <algorithm>

namespace moesaic {

std::string TextLine::where(std::string_view file) const {
  return fmt::format("{} line {}", file, number);
}

bool is_blank(std::string_view line) noexcept {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string_view without_return(std::string_view line) noexcept {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::optional<TextLine> TextLines::next() {
  if (begin_ == text_.size()) return std::nullopt;
  const std::size_t end = std::min(text_.find('\n', begin_), text_.size());
  const std::string_view line = text_.substr(begin_, end - begin_);
  begin_ = std::min(end + 1, text_.size());
  return TextLine{without_return(line), ++number_, static_cast<std::int64_t>(begin_)};
}

std::optional<TextLine> TextLines::next_filled() {
  std::optional<TextLine> line = next();
  while (line && is_blank(line->text)) line = next();
  return line;
}

}  // namespace moesaic
