#pragma once

#include "launch/options/options.h"

namespace moesaic {

// The verbs of studies that start no MPI. Each returns the program's exit code and throws Error for
// what fails.

/// Runs the points that are not there yet, and writes OUT/study.jsonl of those that are. The exit
/// code is that of the first point that failed, or kInterruptedCode.
int run_study(const Command& command);
/// Prints how many points there are; with --log-level debug also which.
int run_study_points(const Command& command);

}  // namespace moesaic
