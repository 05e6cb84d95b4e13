#include "comm/node_map.h"

#include <map>

#include "comm/communicator.h"

namespace moesaic {

NodeMap::NodeMap(std::span<const int> ids) {
  std::map<int, std::size_t> node_of_id;
  for (std::size_t rank = 0; rank < ids.size(); ++rank) {
    const std::size_t node = node_of_id.try_emplace(ids[rank], nodes.size()).first->second;
    if (node == nodes.size()) nodes.emplace_back();
    places.push_back({node, static_cast<int>(nodes[node].size())});
    nodes[node].push_back(static_cast<int>(rank));
  }
}

NodeMap map_nodes(Communicator& ranks, Communicator& node) {
  int id = ranks.rank();  // of the node: its first rank
  node.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  std::vector<int> ids(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&id, 1)), std::as_writable_bytes(std::span(ids)));
  return NodeMap(ids);
}

}  // namespace moesaic
