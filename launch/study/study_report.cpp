#include "launch/study/study_report.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/directory.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "launch/study/child_process.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The picture beside the .svg file. Returns why there is none; empty: it is there.
std::string write_png(const fs::path& svg, Interruption& interruption) {
  const auto beside = [&](const char* extension) {
    return fs::path(svg).replace_extension(extension).string();
  };
  std::string failure;
  try {
    const int code = run_child({.arguments = {"rsvg-convert", "-o", beside(".png"), svg.string()},
                                .output = "/dev/null",
                                .errors = beside(".log")},
                               interruption);
    if (code != 0) {
      const std::string words = last_words(read_file(beside(".log"), kMaxConfigBytes));
      failure = fmt::format("rsvg-convert ended with code {}: {}", code, words);
    }
  } catch (const Error& error) {
    failure = error.what();
  }
  std::error_code ignored;
  fs::remove(beside(".log"), ignored);
  if (!failure.empty()) fs::remove(beside(".png"), ignored);  // half of one, or of another report
  return failure;
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
  const Log log(command.options.log_level, 0, 1);
  const std::string obstacle = model_obstacle(study, rows);
  if (!obstacle.empty()) log.once(LogLevel::warning, "{}; the report has no predictions", obstacle);
  const std::vector<ReportPlot> plots = report_plots(
      rows, obstacle.empty() ? read_predictions(study.out) : std::vector<Prediction>());
  const fs::path out(study.out);
  make_directories(out / "plots");
  Interruption interruption({});
  std::string failure;
  std::size_t pictures = 0;
  for (const ReportPlot& plot : plots) {
    const fs::path svg = out / "plots" / (plot.name + ".svg");
    replace_file(svg.string(), plot.svg);
    if (failure.empty()) failure = write_png(svg, interruption);
    if (failure.empty()) ++pictures;
  }
  replace_file((out / "points.csv").string(), points_csv(rows, options));
  replace_file((out / "report.html").string(), report_html(rows, plots, options));
  log.once(LogLevel::info, "{} points, {} plots{}", rows.size(), plots.size(),
           failure.empty() ? "" : fmt::format(", {} of them as .png: {}", pictures, failure));
  fmt::print("{}\n", (out / "report.html").string());
  return 0;
}

}  // namespace moesaic
