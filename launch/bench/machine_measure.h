#pragma once

#include "launch/job/runtime.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// What the nodes of this job do, with all threads of all ranks at work at the same time: products
/// of each format, attention, reads, rows between products, barriers, and rows between the ranks
/// that there are; and what their GPUs do, where they have some. All ranks get the same. Takes most
/// of half a minute. Collective.
[[nodiscard]] MachineRates measure_machine(const Runtime& runtime);

}  // namespace moesaic
