#pragma once

#include "comm/communicator.h"

namespace moesaic {

/// Exchanges tokens there and back, in one and in two batches at a time, and checks that after the
/// first rounds nothing is allocated. All ranks of `world` call it together. Records GoogleTest
/// failures. Counts by tests/support/allocations.h.
void check_allocations(Communicator& world);

}  // namespace moesaic
