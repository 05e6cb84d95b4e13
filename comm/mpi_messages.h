#pragma once

#include "comm/messages.h"
#include "comm/mpi_handles.h"

namespace moesaic {

/// Messages over MPI; `comm` must outlive them and their maker.
[[nodiscard]] MessageMaker mpi_message_maker(const MpiHandle& comm);

}  // namespace moesaic
