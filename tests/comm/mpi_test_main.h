#pragma once

#include "comm/mpi_communicator.h"

namespace moesaic {

/// The MPI session of a test program, made by its main.
[[nodiscard]] const MpiSession& mpi_test_session();

}  // namespace moesaic
