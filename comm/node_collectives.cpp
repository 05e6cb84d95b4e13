#include "comm/node_collectives.h"

#include <algorithm>

#include "comm/mpi_slice_sum.h"

namespace moesaic {

NodeCollectives::NodeCollectives(const MpiHandle& comm, const NodeMap& nodes, MemoryBoard& board,
                                 const WaitPolicy& policy)
    : comm_(comm), policy_(policy), mpi_(comm, policy), node_(board) {
  const NodeMap::Place& place = nodes.place_of(comm.rank());
  own_ = static_cast<std::size_t>(place.rank);
  own_node_ = place.node;
  adders_ = std::ranges::min_element(nodes.nodes, {}, [](const auto& ranks) {
              return ranks.size();
            })->size();
  if (own_ >= adders_) return;
  for (const std::vector<int>& ranks : nodes.nodes) alike_.push_back(ranks[own_]);
}

void NodeCollectives::sum(std::span<std::int64_t> values) {
  if (values.size_bytes() < kSliceSumFromBytes) return mpi_.sum(values);
  node_.sum(values);
  if (own_ < adders_) {
    for_each_mpi_piece(slice_of(values, own_, adders_), [&](std::span<std::int64_t> piece) {
      sum_in_slices(comm_, policy_, {alike_, own_node_}, piece);
    });
  }
  for (std::size_t adder = 0; adder < adders_; ++adder) {
    node_.broadcast(std::as_writable_bytes(slice_of(values, adder, adders_)),
                    static_cast<int>(adder));
  }
}

}  // namespace moesaic
