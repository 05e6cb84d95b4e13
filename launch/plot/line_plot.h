#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moesaic {

/// A point of a curve; values that are no numbers, or that a logarithm does not have, are left out.
struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;   // of its error bar; both 0: none
  double high = 0;  // infinite: the bar leaves the picture
  bool is_hollow = false;
};

struct PlotCurve {
  std::string name{};  // empty: not in the legend
  std::string colour = "#1f5f9f";
  double width = 2;  // of the line; 0: none
  bool is_dashed = false;
  bool has_marks = false;
  std::vector<PlotPoint> points{};
};

struct PlotAxis {
  std::string name{};
  bool is_logarithmic = false;  // marks at powers of 2
  bool from_zero = false;
};

struct LinePlot {
  std::string title{};  // empty: none
  PlotAxis x{};
  PlotAxis y{};
  std::vector<PlotCurve> curves{};
};

/// As an SVG picture of 800 x 450.
[[nodiscard]] std::string plot_svg(const LinePlot& plot);

/// The colour of the n-th curve of several.
[[nodiscard]] std::string plot_colour(std::size_t n);

}  // namespace moesaic
