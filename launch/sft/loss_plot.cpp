#include "launch/sft/loss_plot.h"

#include <cmath>

#include "launch/plot/line_plot.h"

namespace moesaic {
namespace {

constexpr double kSmoothing = 0.9;

PlotCurve curve_of(PlotCurve curve, const std::vector<LossPoint>& points) {
  for (const LossPoint& point : points) {
    curve.points.push_back({.x = static_cast<double>(point.step), .y = point.loss});
  }
  return curve;
}

}  // namespace

std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points, double keep) {
  std::vector<LossPoint> result;
  double mean = 0;
  double weight = 0;
  for (const LossPoint& point : points) {
    if (!std::isfinite(point.loss)) continue;
    mean = keep * mean + (1 - keep) * point.loss;
    weight = keep * weight + (1 - keep);
    result.push_back({point.step, mean / weight});
  }
  return result;
}

std::string loss_svg(const LossCurves& curves) {
  LinePlot plot{.x = {.name = "step", .from_zero = true}};
  plot.curves = {
      curve_of({.name = "loss", .colour = "#9bbfe0", .width = 1}, curves.train),
      curve_of({.name = "smoothed", .colour = "#1f5f9f"}, smoothed(curves.train, kSmoothing)),
      curve_of({.name = "held out", .colour = "#c0392b"}, curves.held_out)};
  return plot_svg(plot);
}

}  // namespace moesaic
