#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace moesaic {

class Communicator;

/// Which ranks of a group share a node.
struct NodeMap {
  /// A rank's place: its node, and its number among the ranks there.
  struct Place {
    std::size_t node = 0;
    int rank = 0;
  };

  std::vector<std::vector<int>> nodes;  // [nodes] the ranks of each, ascending
  std::vector<Place> places;            // [ranks]

  NodeMap() = default;
  /// `ids` has one number for each rank; ranks with the same share a node.
  explicit NodeMap(std::span<const int> ids);

  [[nodiscard]] const std::vector<int>& ranks_of(std::size_t node) const { return nodes[node]; }
  [[nodiscard]] const Place& place_of(int rank) const {
    return places[static_cast<std::size_t>(rank)];
  }
  /// Who in `node` gets the messages of a rank elsewhere, for all ranks there: its number on the
  /// node. Rank i of a node writes to rank i modulo n of another.
  [[nodiscard]] int agent_for(int rank, std::size_t node) const {
    return place_of(rank).rank % static_cast<int>(nodes[node].size());
  }
};

/// That of `ranks`, of which `node` is what split_node() gives. Collective.
[[nodiscard]] NodeMap map_nodes(Communicator& ranks, Communicator& node);

}  // namespace moesaic
