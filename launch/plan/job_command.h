#pragma once

#include <string>

#include "launch/options/options.h"
#include "src/parallel/expert_loads.h"

namespace moesaic {

/// The command line that starts the planned job: mpirun where it has several ranks, the options of
/// `command` that are the job's, and those of the job alone that the file of --config has: it works
/// without the file, some of whose lines may be meant for the plan.
[[nodiscard]] std::string job_command(const Command& command, const CostRanks& ranks);

/// What the planned verb has from that file and from the environment.
[[nodiscard]] Command command_of_job(const Command& command);

}  // namespace moesaic
