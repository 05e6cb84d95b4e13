#pragma once

#include <vector>

#include "launch/study/study_config.h"
#include "launch/study/study_table.h"

namespace moesaic {

/// Throws Error{usage} naming a point and what it has unless `rows`, those of OUT/study.jsonl, are
/// points of this study: by what files of studies say of them, whichever version of the program
/// measured them, or by their ids.
void require_points_of(const StudyConfig& study, const std::vector<StudyRow>& rows);

}  // namespace moesaic
