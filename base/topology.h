#pragma once

#include <string>

namespace moesaic {

/// What of this machine the process may use, as its binding and cpuset leave it.
struct Topology {
  int usable_cores = 1;   ///< physical cores
  int usable_pus = 1;     ///< hardware threads
  int machine_cores = 1;  ///< physical cores of the whole machine
  int usable_numa_nodes = 1;
  std::string cpuset;     ///< usable hardware threads, such as "0-3,8"
  std::string cpu_model;  ///< as the CPU names itself; empty if it does not
};

/// Asks hwloc. Throws Error{resource} if the topology cannot be read.
[[nodiscard]] Topology read_topology();

}  // namespace moesaic
