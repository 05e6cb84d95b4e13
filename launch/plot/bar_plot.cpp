#include "launch/plot/bar_plot.h"

#include <fmt/core.h>

#include <algorithm>

#include "launch/plot/line_plot.h"
#include "launch/plot/svg_frame.h"

namespace moesaic {
namespace {

constexpr double kLegendWidth = 190;

double tallest(const BarPlot& plot) {
  double most = 0;
  for (std::size_t bar = 0; bar < plot.bars.size(); ++bar) {
    double sum = 0;
    for (const BarPlot::Part& part : plot.parts) sum += part.values.at(bar);
    most = std::max(most, sum);
  }
  return most > 0 ? most : 1;
}

/// So many bars from one that has a mark to the next, for `most` marks at most.
std::size_t marks_apart(std::size_t count, std::size_t most) {
  return (count + most - 1) / most;
}

std::string rectangle(double x, double y, double width, double height) {
  return fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", x, y, width,
                     height);
}

}  // namespace

std::string plot_svg(const BarPlot& plot) {
  SvgFrame frame;
  frame.top += 16;
  frame.right += kLegendWidth;
  frame.bottom += 14;
  const double bottom = frame.height - frame.bottom;
  const PlotScale y({0, tallest(plot) * 1.05, bottom, frame.top}, false);
  std::string body;
  for (const double mark : y.marks(6)) {
    body += fmt::format("<path stroke=\"#ddd\" d=\"M{} {:.1f}H{}\"/>\n", frame.left, y.pixel(mark),
                        frame.width - frame.right);
    body += svg_text(frame.left - 6, y.pixel(mark) + 4, SvgAnchor::end, mark_text(mark));
  }
  const double step =
      frame.inner_width() / static_cast<double>(std::max<std::size_t>(1, plot.bars.size()));
  for (std::size_t bar = 0; bar < plot.bars.size(); ++bar) {
    const double x = frame.left + step * (static_cast<double>(bar) + 0.15);
    double sum = 0;
    for (std::size_t p = 0; p < plot.parts.size(); ++p) {
      const double before = y.pixel(sum);
      sum += plot.parts[p].values.at(bar);
      body += fmt::format("<rect {} fill=\"{}\"/>\n",
                          rectangle(x, y.pixel(sum), 0.7 * step, before - y.pixel(sum)),
                          plot_colour(p));
    }
    body += svg_text(x + 0.35 * step, bottom + 16 + static_cast<double>(bar % 2) * 14,
                     SvgAnchor::middle, plot.bars[bar]);
  }
  SvgFrame whole = frame;
  whole.right = 20;
  for (std::size_t p = 0; p < plot.parts.size(); ++p) {
    body += svg_legend(whole, static_cast<int>(p),
                       fmt::format("stroke=\"{}\" stroke-width=\"10\"", plot_colour(p)),
                       plot.parts[p].name);
  }
  return svg_picture(frame, plot.title, body + svg_axes(frame, "", plot.y));
}

std::string plot_svg(const HeatMap& map) {
  SvgFrame frame;
  frame.top += 16;
  const std::size_t columns = map.rows.empty() ? 0 : map.rows.front().size();
  const auto lines = static_cast<double>(std::max<std::size_t>(1, map.rows.size()));
  const double width = frame.inner_width() / static_cast<double>(std::max<std::size_t>(1, columns));
  frame.height = frame.top + frame.bottom + std::clamp(lines * 24, 60.0, 600.0);
  const double height = frame.inner_height() / lines;
  double most = 0;
  for (const auto& row : map.rows) {
    for (const double value : row) most = std::max(most, value);
  }
  std::string body;
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    const double y = frame.top + static_cast<double>(row) * height;
    for (std::size_t column = 0; column < columns; ++column) {
      const double value = map.rows[row].at(column);
      const double share = most > 0 ? value / most : 0;
      body +=
          fmt::format("<rect {} fill=\"rgb({:.0f},{:.0f},{:.0f})\"><title>{:.4g}</title></rect>\n",
                      rectangle(frame.left + static_cast<double>(column) * width, y, width, height),
                      255 - 224 * share, 255 - 160 * share, 255 - 96 * share, value);
    }
    if (row % marks_apart(map.rows.size(), 24) == 0) {
      body += svg_text(frame.left - 6, y + height / 2 + 4, SvgAnchor::end, fmt::format("{}", row));
    }
  }
  for (std::size_t column = 0; column < columns; column += marks_apart(columns, 16)) {
    body +=
        svg_text(frame.left + (static_cast<double>(column) + 0.5) * width,
                 frame.height - frame.bottom + 18, SvgAnchor::middle, fmt::format("{}", column));
  }
  return svg_picture(frame, map.title, body + svg_axes(frame, map.x, map.y));
}

}  // namespace moesaic
