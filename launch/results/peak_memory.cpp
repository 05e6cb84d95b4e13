#include "launch/results/peak_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"

namespace moesaic {

PeakMemory gather_peak_memory(const Runtime& runtime) {
  const std::vector<std::int64_t> ranks = gather_values(runtime.world(), peak_resident_bytes());
  const std::vector<std::int64_t> nodes =
      gather_values(runtime.world(), node_peak_bytes(runtime.grid().node()));
  return {.least = std::ranges::min(ranks),
          .most = std::ranges::max(ranks),
          .node = std::ranges::max(nodes)};
}

std::string peak_memory_text(const PeakMemory& peak, std::size_t ranks) {
  const std::string most = format_bytes(peak.most);
  if (ranks == 1) return fmt::format("memory     {} at the peak", most);
  return fmt::format("memory     {} to {} a rank at the peak, {} a node", format_bytes(peak.least),
                     most, format_bytes(peak.node));
}

void add_peak_memory(const PeakMemory& peak, JsonWriter& out) {
  out.field("peak_bytes_min", peak.least)
      .field("peak_bytes_max", peak.most)
      .field("node_peak_bytes", peak.node);
}

}  // namespace moesaic
