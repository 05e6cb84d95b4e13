#pragma once

#include <string>
#include <vector>

#include "launch/options/options.h"
#include "launch/study/study_table.h"

namespace moesaic {

/// Measured points in Extra-P's text format: parameter ranks; a region for each group of points
/// that are alike in all else, with the ranks that all groups have; metrics seconds (every
/// repetition), cpu_seconds and the phases. Threads that share cores are left out. Throws
/// Error{usage} if no rank count is in all groups.
[[nodiscard]] std::string extrap_text(const std::vector<StudyRow>& rows);

/// `moesaic study export extrap`: writes OUT/extrap.txt. Returns the exit code.
int run_export_extrap(const Command& command);

}  // namespace moesaic
