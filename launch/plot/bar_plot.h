#pragma once

#include <string>
#include <vector>

namespace moesaic {

/// Bars side by side, each of parts on top of one another.
struct BarPlot {
  struct Part {
    std::string name;
    std::vector<double> values;  // one a bar
  };
  std::string title{};
  std::string y{};  // name of its axis
  std::vector<std::string> bars{};
  std::vector<Part> parts{};
};

/// As an SVG picture.
[[nodiscard]] std::string plot_svg(const BarPlot& plot);

/// A field of squares, darker for larger values.
struct HeatMap {
  std::string title{};
  std::string x{};
  std::string y{};
  std::vector<std::vector<double>> rows{};  // of equal length, from the top
};

/// As an SVG picture.
[[nodiscard]] std::string plot_svg(const HeatMap& map);

}  // namespace moesaic
