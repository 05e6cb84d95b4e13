#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "launch/plot/bar_plot.h"
#include "launch/plot/line_plot.h"
#include "launch/plot/svg_frame.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using test::count;

TEST(PlotScale, MarksAreRound) {
  const PlotScale ranks({1, 64, 0, 600}, true);
  EXPECT_EQ(ranks.marks(8), (std::vector<double>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(ranks.pixel(8), 300);
  const PlotScale share({0, 1, 100, 0}, false);
  EXPECT_EQ(share.marks(5).size(), 6U);
  EXPECT_EQ(share.pixel(0.25), 75);
  EXPECT_EQ(mark_text(16384), "16384");
  EXPECT_EQ(mark_text(-0.0), "0");
  EXPECT_EQ(mark_text(0.2), "0.2");
}

TEST(LinePlot, LeavesOutWhatALogarithmDoesNotHave) {
  LinePlot plot{.y = {.name = "y", .is_logarithmic = true}};
  plot.curves.push_back({.has_marks = true, .points = {{1, 0}, {2, 4}, {3, std::nan("")}, {4, 8}}});
  const std::string svg = plot_svg(plot);
  EXPECT_EQ(count(svg, "<circle"), 2);
  EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0);
  EXPECT_EQ(count(plot_svg(LinePlot{}), "nan"), 0);
  EXPECT_EQ(count(plot_svg(HeatMap{}), "nan"), 0);
}

TEST(LinePlot, EndsABarWithoutEndAtItsEdge) {
  LinePlot plot;
  plot.curves.push_back({.points = {{1, 2, 1, std::numeric_limits<double>::infinity()}}});
  for (const bool is_logarithmic : {false, true}) {
    plot.y.is_logarithmic = is_logarithmic;
    const std::string svg = plot_svg(plot);
    EXPECT_EQ(count(svg, fmt::format("V{:.1f}\"/>", SvgFrame{}.top)), 1) << svg;
    EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0);
  }
}

}  // namespace
}  // namespace moesaic
