#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/study/point_record.h"

namespace moesaic {

/// A point beside the others of its study.
struct StudyRow {
  PointRecord record{};
  // Against the point of the fewest ranks (or the study's baseline) that is alike in all else;
  // nothing where there is none, or where threads had to share cores.
  std::optional<double> speedup{};     // of tokens a second
  std::optional<double> efficiency{};  // speedup by times as many ranks
  /// Tokens a second and core, against the same of that point; also where threads share cores.
  std::optional<double> core_efficiency{};
};

/// The options of a point that others have alike if they are compared with it, whatever their
/// ranks: where a study gives every rank as much (sequences of a weak one), what a rank has.
[[nodiscard]] std::map<std::string, std::string> compared_options(const PointRecord& record);

/// `records` of one study. `baseline`: ranks; nothing: the fewest.
[[nodiscard]] std::vector<StudyRow> compare_points(std::vector<PointRecord> records,
                                                   std::optional<std::int64_t> baseline);

/// Lines of study.jsonl.
[[nodiscard]] std::string study_jsonl(const std::vector<StudyRow>& rows);

}  // namespace moesaic
