#pragma once

#include <string>

#include "src/parallel/step_work.h"

namespace moesaic {

/// Seconds of what a trace is made of.
struct SmpiRates {
  double near_message = 0;  // for a rank, to another of its node
  double near_byte = 0;     // for a node, between its ranks
  double far_message = 0;   // for a rank, to another node
  double far_byte = 0;      // for a node, to others
};

/// Layers of a pass on some ranks.
struct SmpiPass {
  CostRanks ranks{};
  StepMessages messages{};
  double layer_seconds = 0;  // that each rank computes in one of the layers
};

/// What SimGrid's smpirun -replay reads (3.32), of hosts that do 10^9 operations a second.
/// A rank's trace, the layers one after the other: what it computes, and what messages take it, as
/// operations; rows to each other node in one message, which the rank there of the same place
/// takes; results the same way. Copies inside a node are messages to its next rank.
[[nodiscard]] std::string smpi_trace(const SmpiPass& pass, const SmpiRates& rates, int rank);
/// Hosts for the nodes: a link to each and one from it as fast as the rates say, without latency,
/// since messages are counted with what is computed; copies share another.
[[nodiscard]] std::string smpi_platform(const CostRanks& ranks, const SmpiRates& rates);
/// The host of each rank.
[[nodiscard]] std::string smpi_hosts(const CostRanks& ranks);
/// A script that replays the traces of its folder, SimGrid's correction factors at 1.
[[nodiscard]] std::string smpi_script(const CostRanks& ranks);

}  // namespace moesaic
