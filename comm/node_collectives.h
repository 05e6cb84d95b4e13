#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/board_collectives.h"
#include "comm/mpi_collectives.h"
#include "comm/node_map.h"

namespace moesaic {

/// Collective calls of a group on several nodes, whose ranks see the same memory: over MPI, but for
/// sums of many integers. Those are added on each node first, in any order, and cross between nodes
/// once, however many ranks a node has.
class NodeCollectives final : public Collectives {
 public:
  /// All must outlive this object.
  NodeCollectives(const MpiHandle& comm, const NodeMap& nodes, MemoryBoard& board,
                  const WaitPolicy& policy);

  void barrier() override { mpi_.barrier(); }
  void broadcast(std::span<std::byte> data, int root) override { mpi_.broadcast(data, root); }
  void sum(std::span<float> values) override { mpi_.sum(values); }
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override { mpi_.max(values); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    mpi_.all_gather(send, recv);
  }

 private:
  const MpiHandle& comm_;
  WaitPolicy policy_;
  MpiCollectives mpi_;
  BoardCollectives node_;
  std::size_t adders_ = 1;    // ranks of each node that add a slice: as many as the smallest has
  std::size_t own_ = 0;       // number of this rank on its node
  std::size_t own_node_ = 0;  // and that of the node
  std::vector<int> alike_;    // [nodes] the ranks that add the same slice, if this one does
};

}  // namespace moesaic
