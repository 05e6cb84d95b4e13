#pragma once

#include "launch/job/runtime.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// Throws Error{resource} if --memory-limit, or what else limits memory, leaves too little to
/// measure with, and says what would do.
void require_machine_memory(const Runtime& runtime);

/// What the nodes of this job do, with all threads of all ranks at work at the same time: products
/// of each format, attention, reads, rows between products, barriers, and rows between the ranks
/// that there are; and what their GPUs do, where they have some. All ranks get the same. Takes most
/// of half a minute. Collective.
[[nodiscard]] MachineRates measure_machine(const Runtime& runtime);

}  // namespace moesaic
