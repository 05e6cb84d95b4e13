#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/cgroup.h"

namespace moesaic {

/// A physical core that the process may use.
struct UsableCore {
  int cpu = 0;  ///< the first of its hardware threads that may be used, as the system numbers them
  int numa_node = 0;
  int package = 0;
};

/// What of this machine the process may use, as its binding, cpuset and quota leave it.
struct Topology {
  int usable_cores = 1;   ///< physical cores; no more than the quota, rounded down
  int usable_pus = 1;     ///< hardware threads
  int machine_cores = 1;  ///< physical cores of the whole machine
  int machine_numa_nodes = 1;
  int machine_packages = 1;  ///< sockets
  int usable_numa_nodes = 1;
  int usable_packages = 1;
  std::vector<UsableCore> cores{};  ///< of the cpuset, neighbours beside each other
  CpuQuota quota{};                 ///< of the control groups
  std::string cpuset{};             ///< usable hardware threads, such as "0-3,8"
  std::string cpu_model{};          ///< as the CPU names itself; empty if it does not
  bool is_this_machine = true;      ///< false: hwloc was told of another one
};

/// Asks hwloc. Throws Error{resource} if the topology cannot be read.
[[nodiscard]] Topology read_topology();

/// Gives all threads of this process the cpus of the one that has started it, where it may use only
/// a part of them: launchers leave theirs as they found them. False, and nothing is changed, where
/// it may use all of them or others, and where the system refuses.
[[nodiscard]] bool take_cpus_of_parent();

/// Keeps the calling thread, and those that it starts, on these hardware threads. False where the
/// system refuses; errno says why.
[[nodiscard]] bool bind_this_thread(std::span<const int> cpus);

}  // namespace moesaic
