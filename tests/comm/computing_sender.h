#pragma once

#include "base/thread_pool.h"
#include "comm/communicator.h"

namespace moesaic {

/// Rank 0 receives rows of all others and then says so in `memory` (8 zero bytes) that all see. The
/// others do nothing for it but compute in `pool`, which is to look at their transfers between two
/// tasks. Rows are longer than what MPI takes at once. Records GoogleTest failures.
void rows_leave_while_their_senders_compute(Communicator& comm, SharedMemory& memory,
                                            ThreadPool& pool);

}  // namespace moesaic
