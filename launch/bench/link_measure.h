#pragma once

#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// Which ranks send rows to which.
using SendsTo = std::function<bool(int from, int to)>;

/// Time of rows from ranks to others, of all ranks that there are. The latency of a message is what
/// one short row from each rank to one other takes more than an exchange without rows; between
/// nodes, where that has a message to each other node too, its part of such an exchange. `nodes`:
/// the node of each rank. Nothing if no two ranks are of one node (is_inside), or of different
/// ones. Collective.
[[nodiscard]] std::optional<LinkRates> measure_link(Communicator& world,
                                                    const std::vector<int>& nodes, bool is_inside);

/// What moves between two ranks, one way, while the others wait.
struct PairRates {
  double latency_seconds = 0;
  double bytes_per_second = 0;
};
/// A message of MPI's, and rows of ours. Some seconds on a slow network. Collective.
[[nodiscard]] PairRates measure_pair(Communicator& world, int from, int to);

}  // namespace moesaic
