#include "launch/study/study_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/counted.h"
#include "base/error.h"
#include "base/log.h"
#include "base/split.h"
#include "launch/bench/bench_table.h"
#include "launch/job/agreement.h"
#include "launch/results/result_table.h"
#include "launch/study/child_process.h"
#include "launch/study/point_file.h"
#include "launch/study/point_launcher.h"
#include "launch/study/point_record.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string array_id() {
  const std::string job = variable("SLURM_ARRAY_JOB_ID");
  return job.empty() ? "" : job + "_" + variable("SLURM_ARRAY_TASK_ID");
}

/// All of a file that another process writes; empty if there is none.
std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What rank 0 has measured: its last line that is an object. Launchers may add lines of their own.
/// Throws Error{file} if there is none, or another object.
Measurement parse_output(const std::string& path) {
  const std::string text = file_text(path);
  std::string_view found;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with('{')) found = line;
  }
  require(!found.empty(), ErrorKind::file,
          "{}: no line with a measurement, though the launcher ended with code 0", path);
  return parse_measurement(Json::parse(found, path));
}

/// Launchers of another MPI start every rank as a job of its own.
void require_ranks(const StudyConfig& study, std::int64_t wanted, std::int64_t found) {
  require(found == wanted, ErrorKind::usage,
          "{}: launcher = {}: the job had {}, and its point has {}", study.path, study.launcher,
          counted(found, "rank"), wanted);
}

/// A point whose ranks ended as if all were well.
void take_output(const StudyConfig& study, const std::string& path, PointRecord& record) {
  try {
    Measurement measurement = parse_output(path);
    require_ranks(study, record.ranks, measurement.ranks);
    record.measurement = std::move(measurement);
  } catch (const Error& error) {
    record.error = PointError{.exit_code = exit_code(error.kind()), .last_words = error.what()};
  }
}

/// Tells of the points that can never run. Throws Error{usage} unless the study has others and
/// skips these.
void tell_impossible(const StudyConfig& study, const std::vector<StudyPoint>& points,
                     const Log& log) {
  std::vector<const StudyPoint*> impossible;
  for (const StudyPoint& point : points) {
    if (!point.obstacle.empty()) impossible.push_back(&point);
  }
  if (impossible.empty()) return;
  const bool has_others = impossible.size() < points.size();
  const bool skips = has_others && study.impossible == ImpossiblePoints::skip;
  for (const StudyPoint* point : impossible) {
    if (!skips && impossible.size() == 1) break;  // the error says it
    log.once(LogLevel::warning, "[{}/{}] {}{}{}: {}", point->number, points.size(), point->label,
             point->label.empty() ? "" : ": ", skips ? "skipped" : "impossible", point->obstacle);
  }
  const std::string hint =
      has_others ? "; with a line impossible = skip the study goes on without" : "";
  require(skips, ErrorKind::usage, "{}{}{}", impossible.front()->obstacle,
          points.size() == 1 ? ""
                             : fmt::format("; {} of {} points {} impossible", impossible.size(),
                                           points.size(), impossible.size() == 1 ? "is" : "are"),
          hint);
}

/// The points of a study; what is odd about them is told, once each.
std::vector<StudyPoint> make_points(const StudyConfig& study, const Log& log) {
  std::vector<StudyPoint> points = study_points(study, moesaic_environment());
  tell_impossible(study, points, log);
  std::set<std::string> told;
  for (const StudyPoint& point : points) {
    if (point.note.empty() || !told.insert(point.note).second) continue;
    log.once(LogLevel::warning, "{}: {}", study.path, point.note);
  }
  return points;
}

/// Goes through the points of a study.
class StudyRun {
 public:
  explicit StudyRun(const Command& command)
      : options_(command.options),
        log_(options_.log_level, 0, 1),
        study_(read_study(options_.study_config)),
        points_(make_points(study_, log_)),
        place_(study_.out),
        launch_(LaunchPlace::here(study_.launcher)),
        interruption_({.max_time = max_time(), .stop_file = study_.out + "/stop"}) {}

  int run() {
    const auto count = static_cast<std::int64_t>(points_.size());
    require(options_.study_point <= count, ErrorKind::usage, "--point {}: the study has {}",
            options_.study_point, counted(count, "point"));
    for (const StudyPoint& point : points_) (void)point_command(study_.launcher, point, launch_);
    place_.make();
    if (!launch_.has_pmix) {
      log_.once(LogLevel::warning,
                "launcher = auto: srun has no PMIx (srun --mpi=list); mpirun starts the ranks");
    }
    int code = 0;
    try {
      for (const StudyPoint& point : points_) {
        if (options_.study_point != 0 && point.number != options_.study_point) continue;
        const int failed = visit(point);
        if (code == 0) code = failed;
      }
    } catch (const Interrupted& interrupted) {
      interruption_.remove_stop_file();
      log_.once(LogLevel::warning, "interrupted ({}): the same command goes on",
                interruption_.wanted() ? interruption_.reason() : interrupted.what());
      code = kInterruptedCode;
    }
    tell_rows(write_table());
    return code;
  }

 private:
  [[nodiscard]] std::optional<std::chrono::milliseconds> max_time() const {
    if (!options_.max_time) return std::nullopt;
    return std::chrono::milliseconds(options_.max_time->milliseconds);
  }

  /// Runs a point unless it has been. Returns its exit code.
  int visit(const StudyPoint& point) {
    if (interruption_.wanted()) throw Interrupted("interrupted");
    if (const auto code = known_code(point)) return *code;
    std::optional<PointClaim> claim = PointClaim::take(place_, point.id);
    if (!claim) {
      tell(point, "left out: another process is measuring it");
      return 0;
    }
    if (const auto code = known_code(point)) return *code;  // since
    const PointRecord record = point.obstacle.empty() ? measure(point) : skip(point);
    remove_traces(point, record);  // first: nobody looks at a point again that is complete
    claim->complete(point_record_json(record) + "\n");
    (void)write_table();  // for who looks meanwhile, or after a run that ends badly
    if (record.skipped.empty()) {
      tell(point, outcome(record), record.error ? LogLevel::warning : LogLevel::info);
    }
    return record.error ? record.error->exit_code : 0;
  }

  /// The exit code of a point that has been run; nothing if it is to be run, again too.
  [[nodiscard]] std::optional<int> known_code(const StudyPoint& point) const {
    const std::string file = place_.file(point.id);
    if (!std::filesystem::exists(file)) return std::nullopt;
    const PointRecord record = read_point_record(file);
    if (!record.error) return 0;
    if (options_.retry || record.error->may_pass()) return std::nullopt;
    return record.error->exit_code;
  }

  /// The same of a point whose ranks ended with this code: how often in a row they have.
  [[nodiscard]] std::int64_t times_in_a_row(const StudyPoint& point, int code) const {
    const std::string file = place_.file(point.id);
    if (options_.retry || !std::filesystem::exists(file)) return 1;
    const std::optional<PointError> before = read_point_record(file).error;
    return before && before->exit_code == code ? before->times + 1 : 1;
  }

  [[nodiscard]] PointRecord skip(const StudyPoint& point) const {
    PointRecord record = new_point_record(study_, point);
    record.skipped = point.obstacle;
    return record;
  }

  [[nodiscard]] PointRecord measure(const StudyPoint& point) {
    PointRecord record = new_point_record(study_, point);
    record.launch = {.argv = point_command(study_.launcher, point, launch_),
                     .start = utc_now(),
                     .end = "",
                     .job_id = variable("SLURM_JOB_ID"),
                     .array_id = array_id(),
                     .program = this_program()};
    const int code = launch(point, record.launch.argv);
    record.launch.end = utc_now();
    if (code == kInterruptedCode) throw Interrupted("the ranks of a point were asked to stop");
    if (code == 0) {
      take_output(study_, place_.output(point.id), record);
    } else {
      record.error = PointError{.exit_code = code,
                                .last_words = last_words(file_text(place_.log(point.id))),
                                .times = times_in_a_row(point, code)};
    }
    return record;
  }

  /// The exit code of the launcher.
  [[nodiscard]] int launch(const StudyPoint& point, const std::vector<std::string>& command) {
    try {
      return run_child(
          {.arguments = command, .output = place_.output(point.id), .errors = place_.log(point.id)},
          interruption_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      fail(ErrorKind::usage, "{}: launcher = {}: {}", study_.path, study_.launcher, error.what());
    }
  }

  /// What was printed stays for points that failed.
  void remove_traces(const StudyPoint& point, const PointRecord& record) const {
    std::error_code ignored;
    if (record.error) return;
    std::filesystem::remove(place_.output(point.id), ignored);
    std::filesystem::remove(place_.log(point.id), ignored);
  }

  static std::string outcome(const PointRecord& record) {
    if (record.error) {
      return fmt::format("failed with code {}: {}", record.error->exit_code,
                         record.error->last_words);
    }
    const Measurement& m = *record.measurement;
    return fmt::format(
        "{} tokens/s{}{}{}", short_number(m.tokens_per_second()),
        m.ci95 ? fmt::format(" ± {} %", short_number(100 * *m.ci95 / m.seconds, 2)) : "",
        m.is_oversubscribed ? ", oversubscribed" : "",
        m.disturbed > 0 ? fmt::format(", disturbed {} x", m.disturbed) : "");
  }

  void tell(const StudyPoint& point, const std::string& what,
            LogLevel level = LogLevel::info) const {
    log_.once(level, "[{}/{}] {}{}{}", point.number, points_.size(), point.label,
              point.label.empty() ? "" : ": ", what);
  }

  [[nodiscard]] std::vector<StudyRow> write_table() const {
    std::vector<std::string> ids;
    for (const StudyPoint& point : points_) ids.push_back(point.id);
    return write_results(study_, ids);
  }

  void tell_rows(const std::vector<StudyRow>& rows) const {
    const auto failed = std::ranges::count_if(
        rows, [](const StudyRow& row) { return row.record.error.has_value(); });
    const auto skipped = std::ranges::count_if(
        rows, [](const StudyRow& row) { return !row.record.skipped.empty(); });
    log_.once(
        failed > 0 ? LogLevel::warning : LogLevel::info, "{}: {} of {} points{}{}", study_.out,
        rows.size(), points_.size(),
        skipped > 0 ? fmt::format(", {} of them skipped", skipped) : "",
        failed > 0 ? fmt::format(", {} of them failed; --retry runs these again", failed) : "");
  }

  Options options_;
  Log log_;
  StudyConfig study_;
  std::vector<StudyPoint> points_;
  PointPlace place_;
  LaunchPlace launch_;
  Interruption interruption_;
};

}  // namespace

int run_study(const Command& command) {
  return StudyRun(command).run();
}

int run_study_points(const Command& command) {
  const StudyConfig study = read_study(command.options.study_config);
  const std::vector<StudyPoint> points = make_points(study, Log(command.options.log_level, 0, 1));
  fmt::print("{}\n", points.size());
  if (command.options.log_level == LogLevel::debug) {
    for (const StudyPoint& point : points) {
      fmt::print(stderr, "{} {} {}{}\n", point.number, point.id, point.label,
                 point.obstacle.empty() ? "" : " (skipped)");
    }
  }
  return 0;
}

}  // namespace moesaic
