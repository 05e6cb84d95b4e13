#pragma once

#include <string>
#include <vector>

#include "base/interruption.h"

namespace moesaic {

/// A program to run, with nothing to read.
struct ChildProgram {
  std::vector<std::string> arguments{};  // the program's name first, looked for in PATH
  std::string output{};                  // files for what it prints
  std::string errors{};
};

/// Runs it to its end; returns its exit code, or 128 and the number of the signal that ended it.
/// Throws Interrupted when `interruption` wants to stop: the program and its process group have
/// been told so (SIGTERM) and are gone then. The program is told so too if this process dies.
/// Throws Error{usage} if it cannot be started: there is no such program, or it may not be run.
[[nodiscard]] int run_child(const ChildProgram& program, Interruption& interruption);

}  // namespace moesaic
