#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/study/point_record.h"
#include "launch/study/study_table.h"

namespace moesaic::test {

/// A point that was measured on so many ranks, in so many seconds, with this --batch-size.
[[nodiscard]] PointRecord measured(std::int64_t ranks, double seconds, const std::string& batch);

/// Points of 2 to 16 ranks, of which one shares cores and one has failed, compared.
[[nodiscard]] std::vector<StudyRow> study();

}  // namespace moesaic::test
