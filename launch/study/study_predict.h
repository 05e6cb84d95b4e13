#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/options/options.h"
#include "launch/study/study_fit.h"
#include "launch/study/study_table.h"

namespace moesaic {

/// How the source of a rate in OUT/model.json begins that nothing tells.
inline constexpr std::string_view kUnknownRate = "unknown";

/// What is told of a number of ranks that was not measured.
struct Prediction {
  std::string group;  // as group_labels() has it
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  WithInterval tokens_per_second{};  // infinite where points do not tell the time from 0
  double compute_seconds = 0;        // of a repetition
  double exchange_seconds = 0;
  double step_seconds = 0;  // what each forward pass takes besides
  bool is_far = false;      // more than 4 times the ranks that were measured
};

/// What is wrong with OUT/model.json: that it was fitted to other points than `rows`, and what to
/// do. Empty: nothing, or there is no such file. Throws Error{file}.
[[nodiscard]] std::string model_obstacle(const StudyConfig& study,
                                         const std::vector<StudyRow>& rows);
/// The predictions that OUT/model.json holds; none if there is no such file. Throws Error{file}.
[[nodiscard]] std::vector<Prediction> read_predictions(const std::string& out);

/// `moesaic study predict`: fits rates to the measured points and writes OUT/model.json. Returns
/// the exit code.
int run_study_predict(const Command& command);

}  // namespace moesaic
