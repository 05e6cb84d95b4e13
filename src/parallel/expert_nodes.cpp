#include "src/parallel/expert_nodes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moesaic {

ExpertNodes::ExpertNodes(Communicator& experts)
    : ranks_(experts.split_node()), map_(map_nodes(experts, *ranks_)) {}

std::unique_ptr<ExpertNodes> make_expert_nodes(Communicator& experts) {
  if (!experts.has_messages()) return nullptr;
  auto nodes = std::make_unique<ExpertNodes>(experts);
  if (nodes->map().nodes.size() == 1) nodes.reset();
  return nodes;
}

int adding_rank(const TokenChoices& token, const ExpertPlacement& placement, const NodeMap& nodes,
                std::size_t node) {
  const auto is_at_home = [&](ExpertId expert) { return placement.rank_of(expert) == token.home; };
  if (nodes.place_of(token.home).node == node && std::ranges::any_of(token.experts, is_at_home)) {
    return token.home;
  }
  const auto is_there = [&](ExpertId expert) {
    return nodes.place_of(placement.rank_of(expert)).node == node;
  };
  const auto count = std::ranges::count_if(token.experts, is_there);
  if (count == 0) return -1;
  std::int64_t turn = -1;  // of those that are there
  for (auto expert = token.experts.begin();; ++expert) {
    if (!is_there(*expert)) continue;
    if (turn < 0) turn = static_cast<std::int64_t>(*expert) % count;
    if (turn-- == 0) return placement.rank_of(*expert);
  }
}

}  // namespace moesaic
