#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Finds the first of some strings in a text that comes in pieces. Of those that occur, the one
/// counts that ends first, and of several that end together the longest: so nothing depends on how
/// the text is cut.
class StopStrings {
 public:
  /// Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> strings);

  /// Adds a piece and returns the text that is certain: it precedes the string that was found, or
  /// can belong to none. Once one is found, returns no more.
  [[nodiscard]] std::string push(std::string_view piece);
  /// The text ends here: what was held back.
  [[nodiscard]] std::string finish();
  /// The string that was found.
  [[nodiscard]] const std::optional<std::string>& found() const noexcept { return found_; }

 private:
  [[nodiscard]] const std::string* longest_at_end() const;
  [[nodiscard]] std::size_t length_to_hold() const;

  std::vector<std::string> strings_;  // the longest first
  std::string held_;                  // seen, and not yet certain
  std::optional<std::string> found_;
};

}  // namespace moesaic
