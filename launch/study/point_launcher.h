#pragma once

#include <string>
#include <vector>

#include "launch/study/study_points.h"

namespace moesaic {

/// What is known of this place when points are started.
struct LaunchPlace {
  std::string program{};  // this one
  bool in_slurm = false;  // inside an allocation
  bool has_pmix = true;   // srun can start MPI's ranks
  /// May run srun, to look what `launcher` = auto can take.
  [[nodiscard]] static LaunchPlace here(const std::string& launcher);
};

/// The command line that runs a point by the study's `launcher`: mpirun, srun, auto (inside a Slurm
/// allocation srun, or without PMIx mpirun on its nodes; else mpirun), or a command of the user's
/// with {ranks} in it, and perhaps {ranks_per_node}, {nodes} and {link}, in front of the program.
/// Throws Error{usage} for a command without {ranks}.
[[nodiscard]] std::vector<std::string> point_command(const std::string& launcher,
                                                     const StudyPoint& point,
                                                     const LaunchPlace& place);

}  // namespace moesaic
