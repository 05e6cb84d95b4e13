#pragma once

#include <string>
#include <vector>

#include "launch/study/study_predict.h"
#include "launch/study/study_table.h"

namespace moesaic {

struct ReportPlot {
  std::string name{};   // of its file
  std::string title{};  // of its section
  std::string note{};   // what it shows, for readers
  std::string svg{};
};

/// What a million tokens take of the cores that the threads had.
[[nodiscard]] double core_hours(const Measurement& measurement);

/// What a report draws of a study; plots for which there is nothing are left out. Points with more
/// threads than cores are hollow, and in no plot of speed-up or efficiency by ranks.
[[nodiscard]] std::vector<ReportPlot> report_plots(const std::vector<StudyRow>& rows,
                                                   const std::vector<Prediction>& predictions = {});

}  // namespace moesaic
