#include "launch/results/result_table.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace moesaic {
namespace {

std::string json_object(const ResultLine& line) {
  JsonWriter out;
  for (const ResultField& field : line) {
    out.raw_field(field.key, field.is_text ? json_quote(field.value) : field.value);
  }
  return out.text();
}

/// A value of RFC 4180: in quotes, with those inside doubled.
std::string csv_cell(std::string_view value) {
  std::string cell = "\"";
  for (const char c : value) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

std::string csv_keys(const ResultLine& line) {
  std::vector<std::string_view> keys;
  for (const ResultField& field : line) keys.push_back(field.key);
  return fmt::format("{}\n", fmt::join(keys, ","));
}

std::string csv_row(const ResultLine& line) {
  std::vector<std::string> cells;
  for (const ResultField& field : line) cells.push_back(csv_cell(field.value));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string markdown_cell(std::string_view text, bool is_text, std::size_t width) {
  return is_text ? fmt::format(" {:<{}} |", text, width) : fmt::format(" {:>{}} |", text, width);
}

std::string markdown_head(const ResultLine& line, const std::vector<std::size_t>& widths) {
  std::string head = "|";
  std::string rule = "|";
  for (std::size_t column = 0; column < line.size(); ++column) {
    const bool is_text = line[column].is_text;
    head += markdown_cell(line[column].key, is_text, widths[column]);
    rule += fmt::format(" {:-<{}}{} |", "", widths[column] - 1, is_text ? '-' : ':');
  }
  return head + "\n" + rule + "\n";
}

std::vector<std::size_t> column_widths(std::span<const ResultLine> lines) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < lines.front().size(); ++column) {
    std::size_t width = std::max<std::size_t>(lines.front()[column].key.size(), 3);  // for "--:"
    for (const ResultLine& line : lines) width = std::max(width, line[column].value.size());
    widths.push_back(width);
  }
  return widths;
}

}  // namespace

std::string ResultTable::head(std::span<const ResultLine> lines) {
  switch (form_) {
    case ResultForm::md:
      widths_ = column_widths(lines);
      return markdown_head(lines.front(), widths_);
    case ResultForm::csv:
      return csv_keys(lines.front());
    case ResultForm::json:
      return "[\n  ";
    case ResultForm::jsonl:
      return "";
  }
  return "";
}

std::string ResultTable::row(const ResultLine& line) const {
  if (form_ == ResultForm::json) return json_object(line);
  if (form_ == ResultForm::jsonl) return json_object(line) + "\n";
  if (form_ == ResultForm::csv) return csv_row(line);
  std::string text = "|";
  for (std::size_t column = 0; column < line.size(); ++column) {
    text += markdown_cell(line[column].value, line[column].is_text, widths_[column]);
  }
  return text + "\n";
}

std::string ResultTable::add(std::span<const ResultLine> lines) {
  std::string text;
  for (const ResultLine& line : lines) {
    if (!has_lines_) {
      text += head(lines);
    } else if (form_ == ResultForm::json) {
      text += ",\n  ";
    }
    has_lines_ = true;
    text += row(line);
  }
  return text;
}

std::string ResultTable::end() const {
  if (form_ != ResultForm::json) return "";
  return has_lines_ ? "\n]\n" : "[\n]\n";
}

std::string result_table(std::span<const ResultLine> lines, ResultForm form) {
  ResultTable table(form);
  const std::string text = table.add(lines);
  return text + table.end();
}

std::string short_number(double value, int digits) {
  const double size = std::abs(value);
  if (size == 0 || !std::isfinite(size)) return size == 0 ? "0" : "null";
  const int before_point = static_cast<int>(std::floor(std::log10(size))) + 1;
  return fmt::format("{:.{}f}", value, std::max(digits - before_point, 0));
}

}  // namespace moesaic
