#include "launch/study/study_report.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/error.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/output_file.h"
#include "launch/study/child_process.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The picture beside the .svg file; false without the program that makes it.
bool write_png(const fs::path& svg, Interruption& interruption) {
  fs::path png = svg;
  png.replace_extension(".png");
  try {
    return run_child({.arguments = {"rsvg-convert", "-o", png.string(), svg.string()},
                      .output = "/dev/null",
                      .errors = "/dev/null"},
                     interruption) == 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

int run_study_report(const Command& command) {
  const StudyConfig study = read_study(command.options.study_config);
  const std::vector<StudyRow> rows = read_results(study);
  const ReportOptions options{
      .title = study.path,
      .price_per_node_hour = command.options.price_per_node_hour > 0
                                 ? std::optional(command.options.price_per_node_hour)
                                 : std::nullopt};
  const std::vector<ReportPlot> plots = report_plots(rows, read_predictions(study.out));
  const fs::path out(study.out);
  std::error_code error;
  fs::create_directories(out / "plots", error);
  require(!error, ErrorKind::resource, "{}: cannot be made: {}", (out / "plots").string(),
          error.message());
  Interruption interruption({});
  bool has_png = true;
  for (const ReportPlot& plot : plots) {
    const fs::path svg = out / "plots" / (plot.name + ".svg");
    replace_file(svg.string(), plot.svg);
    has_png = has_png && write_png(svg, interruption);
  }
  replace_file((out / "points.csv").string(), points_csv(rows, options));
  replace_file((out / "report.html").string(), report_html(rows, plots, options));
  const Log log(command.options.log_level, 0, 1);
  log.once(LogLevel::info, "{} points, {} plots{}", rows.size(), plots.size(),
           has_png ? "" : "; no .png: rsvg-convert is not installed");
  fmt::print("{}\n", (out / "report.html").string());
  return 0;
}

}  // namespace moesaic
