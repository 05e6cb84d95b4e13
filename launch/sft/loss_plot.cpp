#include "launch/sft/loss_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace moesaic {
namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 450;
constexpr double kLeft = 60;
constexpr double kRight = 20;
constexpr double kTop = 20;
constexpr double kBottom = 45;
constexpr double kSmoothing = 0.9;

/// What the axes span.
struct Frame {
  double last_step = 1;
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -std::numeric_limits<double>::infinity();

  void take(const std::vector<LossPoint>& points) {
    for (const LossPoint& point : points) {
      last_step = std::max(last_step, static_cast<double>(point.step));
      if (!std::isfinite(point.loss)) continue;
      lowest = std::min(lowest, point.loss);
      highest = std::max(highest, point.loss);
    }
  }
  void widen() {
    if (!(lowest <= highest)) lowest = highest = 0;
    const double margin = std::max((highest - lowest) * 0.05, 1e-3);
    lowest -= margin;
    highest += margin;
  }
  [[nodiscard]] double x(double step) const {
    return kLeft + step / last_step * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double loss) const {
    return kHeight - kBottom - (loss - lowest) / (highest - lowest) * (kHeight - kTop - kBottom);
  }
};

/// 1, 2 or 5 times a power of ten, so that about `count` of them fill `range`.
double tick_distance(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string line(const Frame& frame, const std::vector<LossPoint>& points, std::string_view style) {
  std::string path;
  for (const LossPoint& point : points) {
    if (!std::isfinite(point.loss)) continue;
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ",
                        frame.x(static_cast<double>(point.step)), frame.y(point.loss));
  }
  return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, path);
}

std::string axes(const Frame& frame) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  const double rise = tick_distance(frame.highest - frame.lowest, 6);
  for (double loss = std::ceil(frame.lowest / rise) * rise; loss <= frame.highest; loss += rise) {
    const double y = frame.y(loss);
    svg += fmt::format("<path stroke=\"#ddd\" d=\"M{} {:.1f}H{}\"/>\n", kLeft, y, kWidth - kRight);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n", kLeft - 6,
                       y + 4, loss);
  }
  const double step_distance = std::max(1.0, tick_distance(frame.last_step, 8));
  for (double step = 0; step <= frame.last_step; step += step_distance) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
                       frame.x(step), bottom + 18, step);
  }
  svg += fmt::format("<path fill=\"none\" stroke=\"#333\" d=\"M{0} {1}V{2}H{3}\"/>\n", kLeft, kTop,
                     bottom, kWidth - kRight);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", kWidth / 2,
                     kHeight - 8);
  return svg;
}

struct Curve {
  std::string_view name;
  std::string_view style;
  const std::vector<LossPoint>& points;
};

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
  Frame frame;
  frame.take(curves.train);
  frame.take(curves.held_out);
  frame.widen();
  const std::vector<LossPoint> smooth = smoothed(curves.train, kSmoothing);
  const std::array<Curve, 3> lines = {
      {{"loss", "stroke=\"#9bbfe0\" stroke-width=\"1\"", curves.train},
       {"smoothed", "stroke=\"#1f5f9f\" stroke-width=\"2\"", smooth},
       {"held out", "stroke=\"#c0392b\" stroke-width=\"2\"", curves.held_out}}};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += axes(frame);
  double y = kTop + 14;
  for (const Curve& curve : lines) {
    if (curve.points.empty()) continue;
    svg += line(frame, curve.points, curve.style);
    svg += fmt::format("<path {} d=\"M{} {}h24\"/><text x=\"{}\" y=\"{}\">{}</text>\n", curve.style,
                       kWidth - 130, y - 4, kWidth - 100, y, curve.name);
    y += 18;
  }
  return svg + "</svg>\n";
}

}  // namespace moesaic
