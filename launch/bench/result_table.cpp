#include "launch/bench/result_table.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace moesaic {
namespace {

std::string json_lines(std::span<const ResultLine> lines, std::string_view separator) {
  std::vector<std::string> objects;
  for (const ResultLine& line : lines) {
    JsonWriter out;
    for (const ResultField& field : line) {
      out.raw_field(field.key, field.is_text ? json_quote(field.value) : field.value);
    }
    objects.push_back(out.text());
  }
  return fmt::format("{}", fmt::join(objects, separator));
}

/// A value of RFC 4180: in quotes, with those inside doubled.
std::string csv_cell(std::string_view value) {
  std::string cell = "\"";
  for (const char c : value) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

std::string csv(std::span<const ResultLine> lines) {
  std::string text;
  for (const ResultLine& line : lines) {
    std::vector<std::string_view> keys;
    std::vector<std::string> cells;
    for (const ResultField& field : line) {
      keys.push_back(field.key);
      cells.push_back(csv_cell(field.value));
    }
    if (text.empty()) text = fmt::format("{}\n", fmt::join(keys, ","));
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

std::string markdown(std::span<const ResultLine> lines) {
  if (lines.empty()) return "";
  const ResultLine& first = lines.front();
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < first.size(); ++column) {
    std::size_t width = first[column].key.size();
    for (const ResultLine& line : lines) width = std::max(width, line[column].value.size());
    widths.push_back(width);
  }
  std::string head = "|";
  std::string rule = "|";
  std::string body;
  for (std::size_t column = 0; column < first.size(); ++column) {
    const std::size_t width = widths[column];
    const bool left = first[column].is_text;
    head += left ? fmt::format(" {:<{}} |", first[column].key, width)
                 : fmt::format(" {:>{}} |", first[column].key, width);
    rule += fmt::format(" {:-<{}}{} |", "", width - 1, left ? '-' : ':');
  }
  for (const ResultLine& line : lines) {
    body += "|";
    for (std::size_t column = 0; column < line.size(); ++column) {
      body += line[column].is_text ? fmt::format(" {:<{}} |", line[column].value, widths[column])
                                   : fmt::format(" {:>{}} |", line[column].value, widths[column]);
    }
    body += "\n";
  }
  return head + "\n" + rule + "\n" + body;
}

}  // namespace

std::string result_table(std::span<const ResultLine> lines, ResultForm form) {
  switch (form) {
    case ResultForm::md:
      return markdown(lines);
    case ResultForm::csv:
      return csv(lines);
    case ResultForm::json:
      return "[\n  " + json_lines(lines, ",\n  ") + "\n]\n";
    case ResultForm::jsonl:
      return json_lines(lines, "\n") + "\n";
  }
  return "";
}

std::string short_number(double value, int digits) {
  const double size = std::abs(value);
  if (size == 0 || !std::isfinite(size)) return size == 0 ? "0" : "null";
  const int before_point = static_cast<int>(std::floor(std::log10(size))) + 1;
  return fmt::format("{:.{}f}", value, std::max(digits - before_point, 0));
}

}  // namespace moesaic
