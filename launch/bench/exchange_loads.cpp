#include "launch/bench/exchange_loads.h"

#include <algorithm>
#include <utility>

#include "src/parallel/expert_nodes.h"

namespace moesaic {

ExchangeLoads::ExchangeLoads(const LayerRouting& routing, const ExpertPlacement& placement,
                             std::span<const int> nodes, Combine combine)
    : nodes_(nodes.begin(), nodes.end()),
      num_nodes_(1 + *std::ranges::max_element(nodes)),
      rows_(nodes.size() * nodes.size()),
      results_(rows_),
      choices_(rows_),
      is_in_order_(rows_.size(), true),
      node_rows_(nodes.size() * static_cast<std::size_t>(num_nodes_)),
      node_results_(node_rows_) {
  const std::int64_t tokens = routing.num_tokens() / num_ranks();  // of each rank
  // The last token that was counted there.
  std::vector<std::int64_t> last_of_rank(nodes.size(), -1);
  std::vector<std::int64_t> last_of_node(static_cast<std::size_t>(num_nodes_), -1);
  std::vector<ExpertId> last_expert(rows_.size(), ExpertId{0});
  /// Whether it is the token's first there.
  const auto count = [](std::int64_t token, std::int64_t& last, std::int64_t& rows) {
    const bool is_first = std::exchange(last, token) != token;
    rows += is_first ? 1 : 0;
    return is_first;
  };
  const NodeMap map(nodes);
  const auto returns = [&](std::int64_t token, int home, int rank) {
    const auto node = static_cast<std::size_t>(map.place_of(rank).node);
    return num_nodes_ == 1 ||
           adding_rank({home, routing.experts_of(token)}, placement, map, node) == rank;
  };
  for (std::int64_t token = 0; token < routing.num_tokens(); ++token) {
    const auto home = static_cast<int>(token / tokens);
    for (const ExpertId expert : routing.experts_of(token)) {
      const int rank = placement.rank_of(expert);
      const int node = node_of(rank);
      const bool is_first =
          count(token, last_of_rank[static_cast<std::size_t>(rank)], rows_[at_rank(home, rank)]);
      count(token, last_of_node[static_cast<std::size_t>(node)], node_rows_[at_node(home, node)]);
      ++choices_[at_rank(home, rank)];
      if (combine == Combine::fast && !(is_first && returns(token, home, rank))) continue;
      ++results_[at_rank(home, rank)];
      // Results lie by expert and are sent by token.
      if (expert < last_expert[at_rank(home, rank)]) is_in_order_[at_rank(home, rank)] = false;
      last_expert[at_rank(home, rank)] = expert;
      ++node_results_[at_node(home, node)];
    }
  }
}

double ExchangeLoads::choices_of_row() const {
  std::int64_t sent = 0;
  std::int64_t choices = 0;
  for (int home = 0; home < num_ranks(); ++home) {
    for (int rank = 0; rank < num_ranks(); ++rank) {
      if (rank == home) continue;
      sent += rows(home, rank);
      choices += choices_[at_rank(home, rank)];
    }
  }
  return static_cast<double>(choices) / static_cast<double>(sent);
}

std::int64_t ExchangeLoads::far_bytes(const ExchangeSizes& sizes) const {
  std::int64_t bytes = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    for (int node = 0; node < num_nodes_; ++node) {
      if (node != node_of(rank)) bytes += far_bytes(rank, node, sizes);
    }
  }
  return bytes;
}

std::int64_t ExchangeLoads::far_bytes(int rank, int node, const ExchangeSizes& sizes) const {
  std::int64_t peers = 0;
  std::int64_t choices = 0;  // rows for each rank there, added
  std::int64_t returned = 0;
  bool is_in_order = true;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (node_of(peer) != node) continue;
    ++peers;
    choices += rows(rank, peer);
    returned += results(peer, rank);
    is_in_order = is_in_order && is_in_order_[at_rank(peer, rank)];
  }
  const std::int64_t fixed = 96 + 8 * peers;
  const std::int64_t place = peers > 1 ? 4 : 0;
  const std::int64_t result_place = is_in_order ? place : 4;
  const std::int64_t sent = rows_of_node(rank, node);
  return round_up(fixed + place * choices + sent * sizes.tag, 64) + sent * sizes.activations +
         round_up(fixed + result_place * returned, 64) + returned * sizes.result;
}

}  // namespace moesaic
