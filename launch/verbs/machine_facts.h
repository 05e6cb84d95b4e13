#pragma once

#include <span>
#include <string>

#include "base/topology.h"

namespace moesaic {

/// What of a machine matters besides cores and memory, each a line for people: "unknown" where the
/// machine does not tell.
struct MachineFacts {
  std::string huge_pages;
  std::string shared_memory;  // /dev/shm, for MPI, and for shared weights without memfd files
  std::string cpu_quota;
  std::string transports;  // of MPI: what is compiled in, and what this process uses
  std::string ucx;
  std::string process_manager;  // who has started this process
  std::string slurm;            // what srun takes for --mpi
};

/// Those of this machine and process. `root` replaces "/" in tests. May run srun.
[[nodiscard]] MachineFacts machine_facts(const Topology& topology, const std::string& root = "/");

/// Open MPI's ways to send, by the names of their files: "/usr/lib/.../mca_pml_ucx.so" is "pml
/// ucx". `live`: files in this process; `all`: those beside them.
struct TransportFacts {
  std::string transports;
  std::string ucx;
};
[[nodiscard]] TransportFacts transport_facts(std::span<const std::string> live,
                                             std::span<const std::string> all, bool is_one_host);

}  // namespace moesaic
