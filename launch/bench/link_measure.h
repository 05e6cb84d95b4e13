#pragma once

#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

/// Times of exchanges that were made in turn.
struct LinkTimes {
  std::vector<double> idle{};       // without rows
  std::vector<double> one_row{};    // a short one from each rank to one other
  std::vector<double> one_rank{};   // `bytes` of one rank of each node
  std::vector<double> all_ranks{};  // `bytes` of each rank
  double bytes = 0;
  double ranks_of_node = 1;
  double other_nodes = 0;  // 0: inside a node
};
/// What they tell.
struct MeasuredLink {
  LinkRates rates{};
  /// What bytes take could not be told from what others on the machine took: rates are bounds, of
  /// whole exchanges, and no link is slower.
  bool is_noisy = false;
};
/// The latency of a message is what one short row from each rank to one other takes more than an
/// exchange without rows; between nodes, where that has a message to each other node too, its part
/// of such an exchange.
[[nodiscard]] MeasuredLink link_rates(const LinkTimes& times);

/// Time of rows from ranks to others, of all ranks that there are, measured again where it is too
/// noisy. `nodes`: the node of each rank. Nothing if no two ranks are of one node (is_inside), or
/// of different ones. Collective.
[[nodiscard]] std::optional<MeasuredLink> measure_link(Communicator& world,
                                                       const std::vector<int>& nodes,
                                                       bool is_inside);

/// What moves between two ranks, one way, while the others wait.
struct PairRates {
  double latency_seconds = 0;
  std::optional<double> bytes_per_second{};  // nothing: too noisy to tell
};
/// A message of MPI's, and rows of ours. Some seconds on a slow network. Collective.
[[nodiscard]] PairRates measure_pair(Communicator& world, int from, int to);

}  // namespace moesaic
