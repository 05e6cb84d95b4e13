#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/study/study_config.h"
#include "launch/study/study_table.h"

namespace moesaic {

/// Writes OUT/study.jsonl: those of the points `ids` that are there, beside each other. Returns
/// them. One process at a time: others wait.
std::vector<StudyRow> write_results(const StudyConfig& study, const std::vector<std::string>& ids);

/// The points that OUT/study.jsonl lists, whichever version of the program measured them. Throws
/// Error{usage} if there is none, or one of another study.
[[nodiscard]] std::vector<StudyRow> read_results(const StudyConfig& study);

/// A sum of which points were measured, and when.
[[nodiscard]] std::string points_checksum(const std::vector<StudyRow>& rows);

/// Of the values that points differ in, besides ranks: "batch-size 128, expert-format int8"; the
/// same for points that are compared with each other. Empty if there is one such group. `without`:
/// an option that does not count.
[[nodiscard]] std::vector<std::string> group_labels(const std::vector<StudyRow>& rows,
                                                    std::string_view without = {});

}  // namespace moesaic
