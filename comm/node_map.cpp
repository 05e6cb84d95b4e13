#include "comm/node_map.h"

#include <map>

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

}  // namespace moesaic
