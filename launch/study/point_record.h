#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "launch/study/measurement.h"
#include "launch/study/study_points.h"

namespace moesaic {

/// Why a point has no measurement.
struct PointError {
  int exit_code = 0;
  std::string last_words{};
  std::int64_t times = 1;  // in a row that it ended so

  /// A rank was lost, perhaps with its node, which is no property of the point: it is worth another
  /// run. Not for ever: what loses a rank each time is one.
  [[nodiscard]] bool may_pass() const;
};

/// How and when a point was run.
struct PointLaunch {
  std::vector<std::string> argv{};
  std::string start{};  // ISO 8601, UTC
  std::string end{};
  std::string job_id{};    // of Slurm; empty: none
  std::string array_id{};  // of Slurm, "JOB_TASK"; empty: none
  /// Which program did: what is known of it without a measurement. Nothing: not told.
  std::optional<Provenance> program{};
};

/// What is known of a point: the content of its file.
struct PointRecord {
  std::string id{};
  std::string kind{};
  std::string job{};
  std::string link{};
  std::int64_t ranks = 0;
  std::map<std::string, std::string> options{};  // as texts, by name; the model among them
  PointLaunch launch{};
  std::optional<Measurement> measurement{};  // one of these two, unless it was skipped
  std::optional<PointError> error{};
  std::string skipped{};  // why it can never run; empty: it was run

  /// As study.jsonl and the report call it.
  [[nodiscard]] std::string_view status() const noexcept;
};

[[nodiscard]] std::string error_json(const PointError& error);
[[nodiscard]] std::string options_json(const std::map<std::string, std::string>& options);
/// One line of JSON without its end.
[[nodiscard]] std::string point_record_json(const PointRecord& record);
/// Reads a point's file. Throws Error{file} naming the file and the field for one that is cut short
/// or otherwise not what it should be, and what to do.
[[nodiscard]] PointRecord read_point_record(const std::string& path);

/// A record of a point that has not been run.
[[nodiscard]] PointRecord new_point_record(const StudyConfig& study, const StudyPoint& point);

/// What a program said last: its last line with "error: ", else its last lines.
[[nodiscard]] std::string last_words(std::string_view errors);

}  // namespace moesaic
