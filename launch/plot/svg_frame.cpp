#include "launch/plot/svg_frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace moesaic {
namespace {

/// 1, 2 or 5 times a power of ten, so that about `count` of them fill `range`.
double mark_distance(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string svg_text(double x, double y, SvgAnchor anchor, std::string_view text) {
  constexpr std::array<std::string_view, 3> kNames = {"start", "middle", "end"};
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                     kNames[static_cast<std::size_t>(anchor)], xml_text(text));
}

std::string mark_text(double value) {
  constexpr double kLargest = 1e9;
  if (std::abs(value) >= 1e4 && std::abs(value) < kLargest) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value == 0 ? 0.0 : value);  // and not -0
}

std::string svg_picture(const SvgFrame& frame, std::string_view title, std::string_view body) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      frame.width, frame.height);
  if (!title.empty()) svg += svg_text(frame.left, frame.top - 8, SvgAnchor::start, title);
  return svg + std::string(body) + "</svg>\n";
}

std::string svg_axes(const SvgFrame& frame, std::string_view x, std::string_view y) {
  const double bottom = frame.height - frame.bottom;
  std::string svg = fmt::format("<path fill=\"none\" stroke=\"#333\" d=\"M{} {}V{}H{}\"/>\n",
                                frame.left, frame.top, bottom, frame.width - frame.right);
  svg += svg_text(frame.left + frame.inner_width() / 2, frame.height - 8, SvgAnchor::middle, x);
  if (y.empty()) return svg;
  return svg + fmt::format(
                   "<text transform=\"translate(14 {:.1f}) rotate(-90)\" "
                   "text-anchor=\"middle\">{}</text>\n",
                   frame.top + frame.inner_height() / 2, xml_text(y));
}

std::string svg_legend(const SvgFrame& frame, int line, std::string_view style,
                       std::string_view name) {
  const double y = frame.top + 14 + 18 * line;
  const double x = frame.width - frame.right - 180;
  return fmt::format("<path {} d=\"M{} {}h24\"/>", style, x, y - 4) +
         svg_text(x + 30, y, SvgAnchor::start, name);
}

PlotScale::PlotScale(const Span& span, bool is_logarithmic)
    : span_(span), is_logarithmic_(is_logarithmic) {
  if (!is_logarithmic_) return;
  span_.least = std::log2(span_.least);
  span_.most = std::log2(span_.most);
}

double PlotScale::pixel(double value) const {
  const double place = is_logarithmic_ ? std::log2(value) : value;
  const double share = (place - span_.least) / (span_.most - span_.least);
  return span_.first + share * (span_.last - span_.first);
}

std::vector<double> PlotScale::marks(double count) const {
  const double range = span_.most - span_.least;
  const double distance =
      is_logarithmic_ ? std::max(1.0, std::ceil(range / count)) : mark_distance(range, count);
  std::vector<double> marks;
  const double first = std::ceil(span_.least / distance - 1e-9);
  for (double n = first; n * distance <= span_.most + 1e-9 * range; ++n) {
    marks.push_back(is_logarithmic_ ? std::exp2(n * distance) : n * distance);
  }
  return marks;
}

}  // namespace moesaic
