#pragma once

#include <cstdlib>
#include <string>

#include "launch/job/launcher.h"

namespace moesaic {

/// Whether Open MPI's mpirun has bound this process to cores that nobody asked for: to one where
/// ranks are one or two, to a NUMA node where they are more. Of versions whose variables are other
/// than those of Open MPI 4 it is not known, and false; so it is where mpirun has started another
/// program, such as taskset, that has become this one. `variables` are those of the environment,
/// or a test's; `root` replaces "/" in tests.
[[nodiscard]] bool is_bound_by_default(const Launcher::Variables& variables = std::getenv,
                                       const std::string& root = "/");

}  // namespace moesaic
