#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/options/options.h"
#include "launch/study/report_plots.h"

namespace moesaic {

/// What a report shows besides the points.
struct ReportOptions {
  std::string title{};
  std::optional<double> price_per_node_hour{};
};

/// A page that asks for nothing from anywhere and has no scripts.
[[nodiscard]] std::string report_html(const std::vector<StudyRow>& rows,
                                      const std::vector<ReportPlot>& plots,
                                      const ReportOptions& options);

/// A line a point, RFC 4180.
[[nodiscard]] std::string points_csv(const std::vector<StudyRow>& rows,
                                     const ReportOptions& options);

/// `moesaic study report`: writes OUT/report.html, OUT/points.csv and OUT/plots/*.svg, and .png
/// where rsvg-convert makes them. Returns the exit code.
int run_study_report(const Command& command);

}  // namespace moesaic
