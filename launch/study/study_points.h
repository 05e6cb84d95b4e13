#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/options/options.h"
#include "launch/study/study_config.h"

namespace moesaic {

/// One combination of a study's values.
struct StudyPoint {
  std::int64_t number = 0;  // from 1, in the order of the file, the last line's values fastest
  std::int64_t ranks = 1;
  std::string link{};                // empty: not named
  std::vector<std::string> words{};  // name=value, what `study point` is told
  Command command{};                 // the same, understood
  std::string label{};               // what tells it from the others: "ranks 2, batch-size 128"
  std::string id{};                  // hash of all that its result follows from
  std::string note{};                // what is odd about it; empty: nothing
  std::string obstacle{};            // why it can never run, naming the file; empty: it can
};

/// All points, each checked as if it were run; those whose values do not go together, or with their
/// model, have an obstacle. Throws Error{usage} naming file and line for a value that an option
/// does not take.
[[nodiscard]] std::vector<StudyPoint> study_points(const StudyConfig& study,
                                                   const Environment& environment);

/// The same by the file alone: no model is looked at, and they have no ids.
[[nodiscard]] std::vector<StudyPoint> planned_points(const StudyConfig& study,
                                                     const Environment& environment);

}  // namespace moesaic
