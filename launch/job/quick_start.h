#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/job/launcher.h"

namespace moesaic {

/// Names and values of the environment variables that keep MPI_Init from starting what a job of
/// this launcher has no use for: a daemon of a process alone, networks of ranks that are all on one
/// host. Nothing that the user has chosen is among them. `variables` are those of the environment,
/// or a test's; `root` replaces "/" in tests.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> quick_start_variables(
    const Launcher::Variables& variables = std::getenv, const std::string& root = "/");

}  // namespace moesaic
