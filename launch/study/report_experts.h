#pragma once

#include <vector>

#include "launch/study/report_plots.h"

namespace moesaic {

/// Adds a map of experts and layers for each way in which tokens of the study chose: of the point
/// that had most tokens, rows of each expert by the mean of its layer.
void add_expert_maps(const std::vector<StudyRow>& rows, std::vector<ReportPlot>& plots);

}  // namespace moesaic
