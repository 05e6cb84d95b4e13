// What a report shows of points that were measured.

#include "launch/study/study_report.h"

#include <gtest/gtest.h>

#include <string>

#include "launch/study/report_plots.h"
#include "launch/study/study_predict.h"
#include "tests/launch/measured_points.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using test::count;
using test::measured;
using test::study;

TEST(Report, ShowsEveryPointAndAsksForNothing) {
  const std::vector<StudyRow> rows = study();
  const std::vector<ReportPlot> plots = report_plots(rows);
  const std::string html =
      report_html(rows, plots, {.title = "a <study>", .price_per_node_hour = 2});
  EXPECT_EQ(count(html, "<svg "), std::ssize(plots));
  EXPECT_EQ(count(html, "</svg>"), std::ssize(plots));
  for (const char* request : {"<script", "src=", "url(", "@import", "http://", "https://"}) {
    const std::int64_t names = std::string(request) == "http://" ? std::ssize(plots) : 0;  // xmlns
    EXPECT_EQ(count(html, request), names) << request;
  }
  EXPECT_EQ(count(html, "not enough &lt;memory&gt;"), 1);
  EXPECT_NE(html.find("a &lt;study&gt;"), std::string::npos);
  for (const char* name : {"speedup", "efficiency", "core_efficiency", "throughput", "phases",
                           "exposed", "balance", "memory", "cost"}) {
    EXPECT_EQ(count(html, std::string("<figure id=\"") + name + "\""), 1) << name;
  }
  const std::string csv = points_csv(rows, {.title = "", .price_per_node_hour = 2});
  EXPECT_EQ(count(csv, "\n"), 6);
  // 2 an hour, 8 s for 1000 tokens: 4.444 for a million.
  EXPECT_NE(csv.find("\"4.444\""), std::string::npos) << csv;
}

TEST(Report, DrawsSharedCoresHollowAndLeavesThemOutOfSpeedUp) {
  for (const ReportPlot& plot : report_plots(study())) {
    const std::int64_t hollow = count(plot.svg, "<circle") - count(plot.svg, "fill=\"#");
    if (plot.name == "speedup" || plot.name == "efficiency") {
      EXPECT_EQ(count(plot.svg, "<circle"), 3) << plot.name;
      EXPECT_EQ(hollow, 0) << plot.name;
    } else if (plot.name == "throughput") {
      EXPECT_EQ(count(plot.svg, "<circle"), 4);
      EXPECT_EQ(hollow, 1);
    }
  }
}

TEST(Report, TellsNoIntervalOfOneRepetition) {
  PointRecord one = measured(2, 8, "32");
  const auto bars = [&] {
    const auto plots = report_plots(compare_points({one, measured(4, 5, "32")}, std::nullopt));
    const auto found = std::ranges::find(plots, "throughput", &ReportPlot::name);
    return count(found->svg, "<path stroke=\"#1f5f9f\" d=\"M");
  };
  EXPECT_EQ(bars(), 2);
  one.measurement->samples = {8};
  one.measurement->ci95.reset();
  EXPECT_EQ(bars(), 1);
  const std::string csv = points_csv(compare_points({one}, std::nullopt), {});
  EXPECT_NE(csv.find("\"8.000\",\"\",\"125.0\""), std::string::npos) << csv;
}

TEST(Report, DrawsTokensASecondOverTheBatchWhereItDiffers) {
  const auto batches = [](const std::vector<PointRecord>& records) {
    const auto plots = report_plots(compare_points(records, std::nullopt));
    const auto found = std::ranges::find(plots, "batches", &ReportPlot::name);
    return found == plots.end() ? std::string() : found->svg;
  };
  const PointRecord one = measured(1, 8, "32");
  const PointRecord two = measured(2, 8, "32");
  EXPECT_EQ(batches({one, two}), "");
  const std::string svg = batches({one, measured(1, 6, "64"), two, measured(2, 3, "128")});
  EXPECT_EQ(count(svg, "<circle"), 4);
  EXPECT_EQ(count(svg, ">1 rank<"), 1);
  EXPECT_EQ(count(svg, ">2 ranks<"), 1);
  EXPECT_EQ(count(svg, ">batch-size<"), 1);
}

TEST(Report, DrawsRowsOfExpertsOfThePointWithMostTokens) {
  PointRecord few = measured(1, 8, "32");
  few.measurement->expert_rows = {{1, 1, 1, 1}};
  PointRecord many = measured(2, 8, "32");
  many.measurement->tokens = 2000;
  many.measurement->expert_rows = {{0, 2, 6, 4}, {3, 3, 3, 3}};
  PointRecord other = measured(1, 8, "64");
  other.options["model"] = "another";
  other.measurement->expert_rows = {{5, 5, 5, 5}, {0, 0, 0, 0}};
  std::vector<ReportPlot> maps;
  for (const ReportPlot& plot : report_plots(compare_points({few, many, other}, std::nullopt))) {
    if (plot.name.starts_with("experts")) maps.push_back(plot);
  }
  ASSERT_EQ(maps.size(), 2U);
  EXPECT_NE(maps[0].note.find("point 2, 2000 tokens"), std::string::npos) << maps[0].note;
  EXPECT_NE(maps[0].note.find("darkest 2.00 times"), std::string::npos) << maps[0].note;
  EXPECT_EQ(count(maps[0].svg, "<title>"), 8);
  EXPECT_EQ(count(maps[0].svg, "<title>1</title>"), 4);  // all of the second layer
  EXPECT_EQ(count(maps[0].svg, "fill=\"rgb(255,255,255)\"><title>0</title>"), 1);
  EXPECT_EQ(maps[1].name, "experts-2");
  EXPECT_EQ(count(maps[1].svg, "nan"), 0);
}

TEST(Report, DrawsPredictionsDashed) {
  const std::vector<StudyRow> rows = study();
  const std::vector<Prediction> told = {{.group = "batch-size 32",
                                         .ranks = 64,
                                         .tokens_per_second = {1000, 900, 1100},
                                         .is_far = true}};
  const std::vector<ReportPlot> plots = report_plots(rows, told);
  EXPECT_EQ(plots.back().name, "prediction");
  EXPECT_EQ(count(plots.back().svg, "<polyline"), 3);
  EXPECT_EQ(report_plots(rows).size() + 1, plots.size());
}

}  // namespace
}  // namespace moesaic
