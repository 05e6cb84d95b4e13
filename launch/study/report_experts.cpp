#include "launch/study/report_experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>

#include "launch/plot/bar_plot.h"
#include "launch/results/result_table.h"

namespace moesaic {
namespace {

/// What decides which experts tokens choose; sizes and formats hardly do.
std::string choosers(const PointRecord& record) {
  constexpr std::array<std::string_view, 6> kOptions = {"model", "text",    "lora",
                                                        "shape", "routing", "seed"};
  std::string key = record.job;
  for (const std::string_view name : kOptions) {
    const auto found = record.options.find(std::string(name));
    if (found != record.options.end()) key += "\n" + found->second;
  }
  return key;
}

/// By the mean of each layer.
std::vector<std::vector<double>> shares_of_mean(const ExpertRows& rows) {
  std::vector<std::vector<double>> shares;
  for (const std::vector<std::int64_t>& layer : rows) {
    const auto sum = static_cast<double>(std::reduce(layer.begin(), layer.end()));
    const double mean = sum / static_cast<double>(layer.size());
    std::vector<double>& line = shares.emplace_back();
    for (const std::int64_t count : layer) {
      line.push_back(mean > 0 ? static_cast<double>(count) / mean : 0);
    }
  }
  return shares;
}

double most_of(const std::vector<std::vector<double>>& shares) {
  double most = 0;
  for (const std::vector<double>& line : shares) most = std::max(most, std::ranges::max(line));
  return most;
}

bool has_rows(const StudyRow& row) {
  const auto& measurement = row.record.measurement;
  return measurement && !measurement->expert_rows.empty();
}

/// The points that are drawn, by their places in `rows`, ascending.
std::vector<std::size_t> points_of_maps(const std::vector<StudyRow>& rows) {
  std::map<std::string, std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!has_rows(rows[i])) continue;
    const auto [known, is_new] = found.try_emplace(choosers(rows[i].record), i);
    const Measurement& drawn = *rows[known->second].record.measurement;
    if (rows[i].record.measurement->tokens > drawn.tokens) known->second = i;
  }
  std::vector<std::size_t> points;
  for (const auto& [key, point] : found) points.push_back(point);
  std::ranges::sort(points);
  return points;
}

}  // namespace

void add_expert_maps(const std::vector<StudyRow>& rows, std::vector<ReportPlot>& plots) {
  int number = 0;
  for (const std::size_t point : points_of_maps(rows)) {
    const Measurement& m = *rows[point].record.measurement;
    const auto shares = shares_of_mean(m.expert_rows);
    const std::string suffix = ++number > 1 ? fmt::format("-{}", number) : "";
    plots.push_back({.name = "experts" + suffix,
                     .title = "Rows of each expert",
                     .note = fmt::format("Of point {}, {} tokens: rows of each expert by the mean "
                                         "of its layer. White is none, the darkest {} times the "
                                         "mean.",
                                         point + 1, m.tokens, short_number(most_of(shares), 3)),
                     .svg = plot_svg(HeatMap{.title = "rows of experts, by the mean of their layer",
                                             .x = "expert",
                                             .y = "layer with experts",
                                             .rows = shares})});
  }
}

}  // namespace moesaic
