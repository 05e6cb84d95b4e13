#include "launch/plot/line_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "launch/plot/svg_frame.h"

namespace moesaic {
namespace {

/// What the values of one axis span.
struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void take(double value, const PlotAxis& axis) {
    if (!std::isfinite(value) || (axis.is_logarithmic && value <= 0)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  /// With some room, and never empty.
  void widen(const PlotAxis& axis, double room) {
    if (!(least <= most)) least = most = 1;
    if (axis.is_logarithmic) {
      const double factor = std::exp2(std::max(std::log2(most / least) * room, 0.2));
      least /= factor;
      most *= factor;
      return;
    }
    if (axis.from_zero) least = std::min(least, 0.0);
    const double margin = std::max((most - least) * room, 1e-3 * std::max(1e-9, std::abs(most)));
    if (!axis.from_zero || least < 0) least -= margin;
    most += margin;
  }
};

class Drawing {
 public:
  explicit Drawing(const LinePlot& plot) : plot_(plot) {
    if (!plot.title.empty()) frame_.top += 16;
    Range x;
    Range y;
    for (const PlotCurve& curve : plot.curves) {
      for (const PlotPoint& point : curve.points) {
        if (!is_there(point)) continue;
        x.take(point.x, plot.x);
        for (const double value : {point.y, has_bar(point) ? point.low : point.y,
                                   has_bar(point) ? point.high : point.y}) {
          y.take(value, plot.y);
        }
      }
    }
    x.widen(plot.x, plot.x.is_logarithmic ? 0.05 : 0);
    y.widen(plot.y, 0.05);
    x_.emplace(PlotScale::Span{x.least, x.most, frame_.left, frame_.width - frame_.right},
               plot.x.is_logarithmic);
    y_.emplace(PlotScale::Span{y.least, y.most, frame_.height - frame_.bottom, frame_.top},
               plot.y.is_logarithmic);
  }

  [[nodiscard]] std::string svg() const {
    std::string body = grid();
    int line = 0;
    for (const PlotCurve& curve : plot_.curves) {
      if (curve.points.empty()) continue;
      body += draw(curve);
      if (!curve.name.empty()) body += svg_legend(frame_, line++, style(curve), curve.name);
    }
    return svg_picture(frame_, plot_.title, body);
  }

 private:
  [[nodiscard]] bool is_there(const PlotPoint& point) const {
    return std::isfinite(point.x) && std::isfinite(point.y) &&
           (!plot_.x.is_logarithmic || point.x > 0) && (!plot_.y.is_logarithmic || point.y > 0);
  }
  static bool has_bar(const PlotPoint& point) { return point.low != 0 || point.high != 0; }

  [[nodiscard]] std::string grid() const {
    std::string svg;
    for (const double mark : y_->marks(6)) {
      const double y = y_->pixel(mark);
      svg += fmt::format("<path stroke=\"#ddd\" d=\"M{} {:.1f}H{}\"/>\n", frame_.left, y,
                         frame_.width - frame_.right);
      svg += svg_text(frame_.left - 6, y + 4, SvgAnchor::end, mark_text(mark));
    }
    for (const double mark : x_->marks(8)) {
      svg += svg_text(x_->pixel(mark), frame_.height - frame_.bottom + 18, SvgAnchor::middle,
                      mark_text(mark));
    }
    return svg + svg_axes(frame_, plot_.x.name, plot_.y.name);
  }

  static std::string style(const PlotCurve& curve) {
    return fmt::format("stroke=\"{}\" stroke-width=\"{}\"{}", curve.colour,
                       std::max(curve.width, 1.0),
                       curve.is_dashed ? " stroke-dasharray=\"6 4\"" : "");
  }

  [[nodiscard]] std::string draw(const PlotCurve& curve) const {
    std::string path;
    std::string marks;
    for (const PlotPoint& point : curve.points) {
      if (!is_there(point)) continue;
      const double x = x_->pixel(point.x);
      const double y = y_->pixel(point.y);
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
      if (has_bar(point) && (!plot_.y.is_logarithmic || point.low > 0)) {
        marks += fmt::format("<path stroke=\"{}\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", curve.colour, x,
                             y_->pixel(point.low), std::max(y_->pixel(point.high), frame_.top));
      }
      if (!curve.has_marks) continue;
      marks +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" stroke=\"{}\" fill=\"{}\"/>\n",
                      x, y, curve.colour, point.is_hollow ? "white" : curve.colour);
    }
    if (curve.width <= 0) return marks;
    return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style(curve), path) + marks;
  }

  const LinePlot& plot_;
  SvgFrame frame_;
  std::optional<PlotScale> x_;
  std::optional<PlotScale> y_;
};

}  // namespace

std::string plot_svg(const LinePlot& plot) {
  return Drawing(plot).svg();
}

std::string plot_colour(std::size_t n) {
  constexpr std::array<std::string_view, 10> kColours = {"#1f5f9f", "#c0392b", "#2e8b57", "#b8860b",
                                                         "#7d3c98", "#16808a", "#d35400", "#566573",
                                                         "#9bbfe0", "#222222"};
  return std::string(kColours[n % kColours.size()]);
}

}  // namespace moesaic
