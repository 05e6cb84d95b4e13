#pragma once

#include <memory>

#include "comm/comm_options.h"
#include "comm/communicator.h"

namespace moesaic {

/// MPI from its start to its end; one a process. The thread that makes it makes all later calls.
class MpiSession {
 public:
  /// Takes MPI's own arguments out of argc and argv. Throws Error{internal} if MPI runs already.
  /// From now on a rank of several does not end by SIGPIPE.
  MpiSession(int* argc, char*** argv);
  /// Collective, except on the way out of an error: then MPI is left to the end of the process.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// Ends all ranks of the job with this exit code.
  [[noreturn]] void abort(int exit_code) const noexcept;
};

/// All ranks of the job, by point-to-point messages and MPI's collectives. Collective. The session
/// must outlive it and what is split from it.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& session,
                                                                  const CommOptions& options = {});

}  // namespace moesaic
