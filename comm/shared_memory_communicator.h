#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "comm/comm_options.h"
#include "comm/communicator.h"
#include "comm/mpi_communicator.h"

namespace moesaic {

/// Ranks of a node may not map each other's memory, or not enough of it, or none share a node. Of
/// all ranks.
class SharedMemoryRefused : public Error {
 public:
  using Error::Error;
};

/// All ranks of the job. Ranks of one node read each other's rows where they lie in a RowMemory, or
/// copy them once, and, if they are all on one node, meet in shared memory for the collective calls
/// as well; everything else goes over MPI. Where processes may not map each
/// other's memory, all goes over MPI, or, if the options say so, SharedMemoryRefused is thrown on
/// all ranks. Collective. The session must outlive it and what is split from it.
[[nodiscard]] std::unique_ptr<Communicator> make_shared_memory_communicator(
    const MpiSession& session, const CommOptions& options = {});

}  // namespace moesaic
