#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "launch/job/runtime.h"

namespace moesaic {

/// Resident bytes of a run's ranks at their peaks.
struct PeakMemory {
  std::int64_t least = 0;  // of a rank
  std::int64_t most = 0;
  std::int64_t node = 0;  // of all ranks of the node with most, what they share once
};

/// Until now. Collective.
[[nodiscard]] PeakMemory gather_peak_memory(const Runtime& runtime);

/// "memory     80.0 MiB to 82.0 MiB a rank at the peak, 140 MiB a node", of one rank
/// "memory     82.0 MiB at the peak".
[[nodiscard]] std::string peak_memory_text(const PeakMemory& peak, std::size_t ranks);
/// As members peak_bytes_min, peak_bytes_max and node_peak_bytes.
void add_peak_memory(const PeakMemory& peak, JsonWriter& out);

}  // namespace moesaic
