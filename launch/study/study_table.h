#pragma once

#include <optional>
#include <string>
#include <string_view>
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

/// Whether a study of this kind sets an option by the number of ranks: points that differ in it are
/// compared all the same.
[[nodiscard]] bool depends_on_ranks(std::string_view kind, std::string_view option) noexcept;

/// `records` of one study. `baseline`: ranks; nothing: the fewest.
[[nodiscard]] std::vector<StudyRow> compare_points(std::vector<PointRecord> records,
                                                   std::optional<std::int64_t> baseline);

/// Lines of study.jsonl.
[[nodiscard]] std::string study_jsonl(const std::vector<StudyRow>& rows);

}  // namespace moesaic
