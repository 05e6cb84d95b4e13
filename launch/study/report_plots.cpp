#include "launch/study/report_plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/counted.h"
#include "launch/plot/bar_plot.h"
#include "launch/plot/line_plot.h"
#include "launch/study/report_experts.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

constexpr double kMillion = 1e6;

/// What a plot says of a point; nothing: it is not in it.
using Value = std::function<std::optional<double>(const StudyRow&)>;

/// Draws values of points over another one, a curve for each label.
class PointCurves {
 public:
  /// `labels`: [rows].
  PointCurves(const std::vector<StudyRow>& rows, std::vector<std::string> labels, Value x)
      : rows_(rows), labels_(std::move(labels)), x_(std::move(x)) {}

  [[nodiscard]] std::vector<PlotCurve> curves(const Value& value) const {
    std::map<std::string, PlotCurve> found;
    std::vector<std::string> order;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const StudyRow& row = rows_[i];
      if (!row.record.measurement) continue;
      const std::optional<double> x = x_(row);
      const std::optional<double> y = value(row);
      if (!x || !y) continue;
      const Measurement& m = *row.record.measurement;
      if (!found.contains(labels_[i])) order.push_back(labels_[i]);
      PlotPoint& point = found[labels_[i]].points.emplace_back(
          PlotPoint{.x = *x, .y = *y, .is_hollow = m.is_oversubscribed});
      if (!m.ci95) continue;
      const double error = *y * *m.ci95 / m.seconds;
      point.low = *y - error;
      point.high = *y + error;
    }
    std::vector<PlotCurve> result;
    for (const std::string& label : order) {
      PlotCurve& curve = result.emplace_back(std::move(found[label]));
      curve.name = label.empty() ? "measured" : label;
      curve.colour = plot_colour(result.size() - 1);
      curve.has_marks = true;
      std::ranges::sort(curve.points, {}, &PlotPoint::x);
    }
    return result;
  }

 private:
  const std::vector<StudyRow>& rows_;
  std::vector<std::string> labels_;
  Value x_;
};

/// Over their ranks.
class RankPlots : public PointCurves {
 public:
  explicit RankPlots(const std::vector<StudyRow>& rows)
      : PointCurves(rows, group_labels(rows), [](const StudyRow& row) {
          return std::optional(static_cast<double>(row.record.measurement->ranks));
        }) {}
};

std::optional<double> speed(const StudyRow& row) {
  return row.record.measurement->tokens_per_second();
}

std::pair<double, double> ends(const std::vector<PlotCurve>& curves) {
  double least = 1e300;
  double most = 0;
  for (const PlotCurve& curve : curves) {
    for (const PlotPoint& point : curve.points) {
      least = std::min(least, point.x);
      most = std::max(most, point.x);
    }
  }
  return {least, most};
}

/// The ranks that others are compared with: where the value is 1.
double baseline_of(const std::vector<PlotCurve>& curves) {
  double ranks = ends(curves).first;
  for (const PlotCurve& curve : curves) {
    for (const PlotPoint& point : curve.points) {
      if (point.y == 1) ranks = point.x;
    }
  }
  return ranks;
}

PlotCurve ideal_line(double least, double most) {
  return {.name = "ideal",
          .colour = "#999999",
          .width = 1,
          .is_dashed = true,
          .points = {{.x = least, .y = 1}, {.x = most, .y = 1}}};
}

/// 1 for the baseline, and as many times as much for more ranks.
PlotCurve ideal_speedup(const std::vector<PlotCurve>& curves) {
  const auto [least, most] = ends(curves);
  PlotCurve line = ideal_line(least, most);
  for (PlotPoint& point : line.points) point.y = point.x / baseline_of(curves);
  return line;
}

PlotCurve ideal_efficiency(const std::vector<PlotCurve>& curves) {
  const auto [least, most] = ends(curves);
  return ideal_line(least, most);
}

void add_lines(std::vector<ReportPlot>& plots, ReportPlot about, LinePlot plot) {
  if (plot.curves.empty()) return;
  if (plot.x.name.empty()) plot.x.name = "ranks";
  plot.x.is_logarithmic = true;
  about.svg = plot_svg(plot);
  plots.push_back(std::move(about));
}

void add_speeds(const RankPlots& ranks, std::vector<ReportPlot>& plots) {
  std::vector<PlotCurve> speedups = ranks.curves([](const StudyRow& row) { return row.speedup; });
  if (!speedups.empty()) speedups.push_back(ideal_speedup(speedups));
  add_lines(plots,
            {.name = "speedup",
             .title = "Speed-up",
             .note = "Tokens a second against the fewest ranks, or those of baseline; points whose "
                     "threads share cores "
                     "are left out.",
             .svg = ""},
            {.title = "speed-up",
             .y = {.name = "speed-up", .is_logarithmic = true},
             .curves = std::move(speedups)});
  std::vector<PlotCurve> efficiencies =
      ranks.curves([](const StudyRow& row) { return row.efficiency; });
  if (!efficiencies.empty()) efficiencies.push_back(ideal_efficiency(efficiencies));
  add_lines(
      plots,
      {.name = "efficiency",
       .title = "Efficiency by ranks",
       .note = "Speed-up by times as many ranks: 1 is ideal, in a strong and in a weak study.",
       .svg = ""},
      {.title = "efficiency by ranks",
       .y = {.name = "efficiency", .from_zero = true},
       .curves = std::move(efficiencies)});
  add_lines(plots,
            {.name = "core_efficiency",
             .title = "Efficiency by cores",
             .note = "Tokens a second and core, against the same of the fewest ranks; hollow: more "
                     "threads than cores.",
             .svg = ""},
            {.title = "efficiency by cores",
             .y = {.name = "tokens a second and core, relative", .from_zero = true},
             .curves = ranks.curves([](const StudyRow& row) { return row.core_efficiency; })});
  add_lines(plots,
            {.name = "throughput",
             .title = "Tokens a second",
             .note = "Bars are 95 % intervals of the mean of several repetitions; hollow: more "
                     "threads than cores.",
             .svg = ""},
            {.title = "tokens a second",
             .y = {.name = "tokens a second", .is_logarithmic = true},
             .curves = ranks.curves(speed)});
}

constexpr std::string_view kBatch = "batch-size";

std::optional<double> batch_of(const StudyRow& row) {
  const auto found = row.record.options.find(std::string(kBatch));
  if (found == row.record.options.end()) return std::nullopt;
  const std::string& text = found->second;
  double tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && tokens > 0 ? std::optional(tokens) : std::nullopt;
}

/// Of a study whose points differ in it; a curve for each number of ranks.
void add_batches(const std::vector<StudyRow>& rows, std::vector<ReportPlot>& plots) {
  std::set<double> batches;
  std::vector<std::string> labels = group_labels(rows, kBatch);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (const auto& measured = rows[i].record.measurement) {
      if (const auto batch = batch_of(rows[i])) batches.insert(*batch);
      labels[i] = fmt::format("{}{}{}", counted(measured->ranks, "rank"),
                              labels[i].empty() ? "" : ", ", labels[i]);
    }
  }
  if (batches.size() < 2) return;
  add_lines(plots,
            {.name = "batches",
             .title = "Tokens a second by batch",
             .note = "Over the most tokens that a rank processes at once (--batch-size); hollow: "
                     "more threads than cores.",
             .svg = ""},
            {.title = "tokens a second",
             .x = {.name = "batch-size"},
             .y = {.name = "tokens a second", .is_logarithmic = true},
             .curves = PointCurves(rows, std::move(labels), batch_of).curves(speed)});
}

void add_shares(const RankPlots& ranks, std::vector<ReportPlot>& plots) {
  add_lines(plots,
            {.name = "exposed",
             .title = "Exposed communication",
             .note = "Of a repetition's time, what ranks spent in exchanges: moving rows, and "
                     "waiting for slower ranks.",
             .svg = ""},
            {.title = "exposed communication",
             .y = {.name = "share of the time", .from_zero = true},
             .curves = ranks.curves([](const StudyRow& row) {
               return std::optional(row.record.measurement->exposed_share);
             })});
  add_lines(plots,
            {.name = "balance",
             .title = "Balance of the ranks",
             .note = "Rows of the experts of the rank with the most, by the mean: 1 is even.",
             .svg = ""},
            {.title = "balance of ranks",
             .y = {.name = "rows, most over mean"},
             .curves = ranks.curves([](const StudyRow& row) {
               return std::optional(row.record.measurement->rows_max_over_mean);
             })});
  add_lines(
      plots,
      {.name = "cost", .title = "Cost", .note = "Of the cores that the threads had.", .svg = ""},
      {.title = "core-hours per million tokens",
       .y = {.name = "core-hours", .from_zero = true},
       .curves = ranks.curves([](const StudyRow& row) {
         return std::optional(core_hours(*row.record.measurement));
       })});
}

std::vector<PlotCurve> memory_curves(const RankPlots& ranks, std::int64_t Measurement::*bytes) {
  return ranks.curves([bytes](const StudyRow& row) {
    constexpr double kGiB = 1 << 30;
    return std::optional(static_cast<double>((*row.record.measurement).*bytes) / kGiB);
  });
}

/// Seen and, dashed, planned.
void add_memory(const RankPlots& ranks, std::vector<ReportPlot>& plots) {
  std::vector<PlotCurve> curves = memory_curves(ranks, &Measurement::node_peak_bytes);
  for (PlotCurve planned : memory_curves(ranks, &Measurement::node_planned_bytes)) {
    planned.name.clear();
    planned.is_dashed = true;
    planned.has_marks = false;
    for (PlotPoint& point : planned.points) point.low = point.high = point.y;
    curves.push_back(std::move(planned));
  }
  add_lines(
      plots,
      {.name = "memory",
       .title = "Memory of a node",
       .note = "At the peak, of the node that took most, pages that ranks share once; dashed: "
               "what was planned before the start.",
       .svg = ""},
      {.title = "memory of a node",
       .y = {.name = "GiB", .from_zero = true},
       .curves = std::move(curves)});
}

/// Measured points and, dashed, what was told of more ranks; hollow where no point is near.
void add_predictions(const RankPlots& ranks, const std::vector<Prediction>& predictions,
                     std::vector<ReportPlot>& plots) {
  if (predictions.empty()) return;
  std::vector<PlotCurve> curves = ranks.curves(speed);
  const std::size_t measured = curves.size();
  for (std::size_t i = 0; i < measured; ++i) {
    PlotCurve told{.colour = curves[i].colour, .is_dashed = true, .has_marks = true};
    if (!curves[i].points.empty()) told.points.push_back(curves[i].points.back());
    for (const Prediction& prediction : predictions) {
      const std::string group = prediction.group.empty() ? "measured" : prediction.group;
      if (group != curves[i].name) continue;
      told.points.push_back({.x = static_cast<double>(prediction.ranks),
                             .y = prediction.tokens_per_second.value,
                             .low = prediction.tokens_per_second.low,
                             .high = prediction.tokens_per_second.high,
                             .is_hollow = prediction.is_far});
    }
    if (told.points.size() > 1) curves.push_back(std::move(told));
  }
  add_lines(plots,
            {.name = "prediction",
             .title = "Prediction",
             .note = "Dashed: told by rates fitted to the measured points, with 95 % intervals "
                     "(bootstrap); hollow: more than four times the ranks that were measured.",
             .svg = ""},
            {.title = "tokens a second, measured and predicted",
             .y = {.name = "tokens a second", .is_logarithmic = true},
             .curves = std::move(curves)});
}

void add_phases(const std::vector<StudyRow>& rows, std::vector<ReportPlot>& plots) {
  BarPlot plot{
      .title = "phases of a repetition, mean of the ranks", .y = "ms", .bars = {}, .parts = {}};
  for (const std::string_view phase : kPhaseNames) plot.parts.push_back({std::string(phase), {}});
  plot.parts.push_back({"between", {}});
  std::int64_t number = 0;
  for (const StudyRow& row : rows) {
    ++number;
    if (!row.record.measurement) continue;
    const Measurement& m = *row.record.measurement;
    plot.bars.push_back(fmt::format("{}", number));
    double rest = m.seconds;
    for (std::size_t i = 0; i < m.phases.size(); ++i) {
      plot.parts[i].values.push_back(1e3 * m.phases[i].mean);
      rest -= m.phases[i].mean;
    }
    plot.parts.back().values.push_back(1e3 * std::max(rest, 0.0));
  }
  if (plot.bars.empty()) return;
  plots.push_back({.name = "phases",
                   .title = "Phases",
                   .note = "Bars have the numbers of the points in the table; wait is time in "
                           "exchanges, between is what no phase counts.",
                   .svg = plot_svg(plot)});
}

}  // namespace

double core_hours(const Measurement& m) {
  const double seconds = static_cast<double>(m.cores) * m.seconds;
  return seconds / 3600 * kMillion / static_cast<double>(m.tokens);
}

std::vector<ReportPlot> report_plots(const std::vector<StudyRow>& rows,
                                     const std::vector<Prediction>& predictions) {
  std::vector<ReportPlot> plots;
  const RankPlots ranks(rows);
  add_speeds(ranks, plots);
  add_batches(rows, plots);
  add_phases(rows, plots);
  add_shares(ranks, plots);
  add_expert_maps(rows, plots);
  add_memory(ranks, plots);
  add_predictions(ranks, predictions, plots);
  return plots;
}

}  // namespace moesaic
