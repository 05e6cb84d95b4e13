#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/options/option_values.h"

namespace moesaic {

/// One value of a line of results.
struct ResultField {
  std::string_view key;
  std::string value;
  bool is_text = false;  // else a number or other JSON as it stands
};

/// A line of results; all lines of a table have the same keys in the same order.
using ResultLine = std::vector<ResultField>;

/// A table whose lines come bit by bit: csv (RFC 4180, every value in quotes), json (an array of
/// objects), jsonl (an object a line) or md (a Markdown table, numbers to the right, columns as
/// wide as the first lines need).
class ResultTable {
 public:
  explicit ResultTable(ResultForm form) : form_(form) {}

  /// What is to be printed for `lines`, which come next.
  [[nodiscard]] std::string add(std::span<const ResultLine> lines);
  /// What is to be printed after the last line.
  [[nodiscard]] std::string end() const;

 private:
  [[nodiscard]] std::string head(std::span<const ResultLine> lines);
  [[nodiscard]] std::string row(const ResultLine& line) const;

  ResultForm form_;
  bool has_lines_ = false;
  std::vector<std::size_t> widths_;  // md: of the columns
};

/// A whole table.
[[nodiscard]] std::string result_table(std::span<const ResultLine> lines, ResultForm form);

/// So many significant digits, or all before the point, and no exponent: "0.001235", "12.35",
/// "123457". What is not 0 never becomes "0"; what is not finite is "null".
[[nodiscard]] std::string short_number(double value, int digits = 4);

}  // namespace moesaic
