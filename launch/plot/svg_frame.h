#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Where a picture has its data, in pixels.
struct SvgFrame {
  double width = 800;
  double height = 450;
  double left = 70;
  double right = 20;
  double top = 20;
  double bottom = 45;

  [[nodiscard]] double inner_width() const { return width - left - right; }
  [[nodiscard]] double inner_height() const { return height - top - bottom; }
};

/// Text as XML has it.
[[nodiscard]] std::string xml_text(std::string_view text);

/// A whole picture of this size around `body`; `title` stands above the data.
[[nodiscard]] std::string svg_picture(const SvgFrame& frame, std::string_view title,
                                      std::string_view body);

/// Where the text that is placed begins, ends, or has its middle.
enum class SvgAnchor { start, middle, end };
[[nodiscard]] std::string svg_text(double x, double y, SvgAnchor anchor, std::string_view text);

/// The value of a mark of an axis, as short as it can be told.
[[nodiscard]] std::string mark_text(double value);

/// Names of both axes, and the axes themselves.
[[nodiscard]] std::string svg_axes(const SvgFrame& frame, std::string_view x, std::string_view y);

/// A line of the legend: a piece of `style` and a name. `line` counts from 0.
[[nodiscard]] std::string svg_legend(const SvgFrame& frame, int line, std::string_view style,
                                     std::string_view name);

/// What an axis spans, and where its marks are.
class PlotScale {
 public:
  /// Values from `least` to `most`, drawn from pixel `first` to pixel `last`.
  struct Span {
    double least = 0;
    double most = 1;
    double first = 0;
    double last = 1;
  };
  PlotScale(const Span& span, bool is_logarithmic);

  [[nodiscard]] double pixel(double value) const;
  /// About `count` round values within; powers of 2 of a logarithmic axis.
  [[nodiscard]] std::vector<double> marks(double count) const;

 private:
  Span span_;
  bool is_logarithmic_;
};

}  // namespace moesaic
