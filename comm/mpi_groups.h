#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "comm/comm_options.h"
#include "comm/communicator.h"
#include "comm/mpi_handles.h"

namespace moesaic {

/// What all communicators of a job share.
struct MpiJob {
  CommOptions options;
  int world_rank = 0;
  std::shared_ptr<IdleTime> idle;
  WaitPolicy policy;
  /// By the checksum of their ranks: how many groups have been made of these.
  std::shared_ptr<std::map<std::uint64_t, std::uint64_t>> groups;
};
/// `job` for the ranks of `comm`, a new group. All of these call it, for one group after the other.
[[nodiscard]] MpiJob for_group(MpiJob job, const MpiHandle& comm);

/// The ranks of the job, in a communicator of their own. Collective.
[[nodiscard]] std::unique_ptr<MpiHandle> mpi_world();
[[nodiscard]] MpiJob mpi_job(const MpiHandle& world, const CommOptions& options);
/// The ranks of `comm` that give the same color, ordered by key. Collective.
[[nodiscard]] std::unique_ptr<MpiHandle> mpi_split(const MpiHandle& comm, int color, int key);
/// The ranks of `comm` that run on this rank's node, real or pretended; whether they can see memory
/// together, sharing_memory() finds out. Collective.
[[nodiscard]] std::unique_ptr<MpiHandle> mpi_split_node(const MpiHandle& comm, const MpiJob& job);

/// `comm` as a Communicator of the transport "mpi".
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(std::unique_ptr<MpiHandle> comm,
                                                                  const MpiJob& job);

}  // namespace moesaic
