#include "comm/shared_memory_communicator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "comm/board_collectives.h"
#include "comm/board_rows.h"
#include "comm/far_rows.h"
#include "comm/memory_board.h"
#include "comm/mpi_collectives.h"
#include "comm/mpi_groups.h"
#include "comm/mpi_messages.h"
#include "comm/node_map.h"
#include "comm/segment_row_buffers.h"
#include "comm/shared_segment.h"
#include "comm/transport_communicator.h"

namespace moesaic {
namespace {

/// The nodes of a group, and the board of this rank's.
struct Nodes {
  NodeMap map;
  std::shared_ptr<std::byte> board;
};

/// Memory for the board of `node`, in a group of as many ranks.
SharedSegment share_board_memory(Communicator& node, int group_size) {
  const auto bytes = static_cast<std::int64_t>(MemoryBoard::bytes_needed(node.size(), group_size));
  return share_segment(node, bytes, SharedSegment::Home::anonymous);
}

/// A board that the ranks of `node` all see; null if they may not map each other's memory.
std::shared_ptr<std::byte> share_board(Communicator& node, int group_size) {
  try {
    auto segment = std::make_shared<SharedSegment>(share_board_memory(node, group_size));
    return {segment, segment->bytes().data()};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    return nullptr;
  }
}

/// Throws SharedMemoryRefused on all ranks unless those of each node may map each other's memory,
/// and there is a node with several.
void require_shared_memory(const MpiHandle& world, const MpiJob& job) {
  const auto all = make_mpi_communicator(mpi_split(world, 0, 0), job);
  const auto node = make_mpi_communicator(mpi_split_node(world, job), job);
  const std::string refusal = first_refusal(*all, [&] {
    if (node->size() > 1) (void)share_board_memory(*node, world.size());
  });
  if (!refusal.empty()) {
    throw SharedMemoryRefused(ErrorKind::resource,
                              "ranks of one node cannot map each other's memory: " + refusal);
  }
  std::int64_t most = node->size();
  all->max(std::span(&most, 1));
  if (most == 1 && all->size() > 1) {
    throw SharedMemoryRefused(ErrorKind::usage, "each rank is alone on its node");
  }
}

Nodes find_nodes(const MpiHandle& comm, const MpiJob& job) {
  const auto ranks = make_mpi_communicator(mpi_split_node(comm, job), job);
  Nodes nodes;
  nodes.board = share_board(*ranks, comm.size());
  int id = comm.rank();          // of the first rank of the node
  if (nodes.board == nullptr) {  // each rank is a node of its own
    auto alone = std::make_shared<ByteBuffer>(MemoryBoard::bytes_needed(1, comm.size()));
    nodes.board = {alone, alone->data()};
  } else {
    ranks->broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  }
  std::vector<int> ids(static_cast<std::size_t>(comm.size()));
  MpiCollectives(comm, job.policy)
      .all_gather(std::as_bytes(std::span(&id, 1)), std::as_writable_bytes(std::span(ids)));
  nodes.map = NodeMap(ids);
  return nodes;
}

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<MpiHandle> comm, const MpiJob& job);

class NodeGroup final : public RankGroup {
 public:
  NodeGroup(std::unique_ptr<MpiHandle> comm, const MpiJob& job)
      : comm_(std::move(comm)),
        job_(for_group(job, *comm_)),
        nodes_(find_nodes(*comm_, job_)),
        board_(nodes_.board, {own().rank, node_size(), nodes_.map.ranks_of(own().node), size()},
               job_.policy) {}

  [[nodiscard]] int rank() const noexcept override { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept override { return comm_->size(); }
  [[nodiscard]] std::string transport() const override {
    if (is_one_node()) return "shared memory";
    return node_size() == 1 ? "mpi" : "shared memory and mpi";
  }
  // MPI's split has no deadline of its own: the barrier finds the rank that does not come.
  std::unique_ptr<Communicator> split(Communicator& self, int color, int key) override {
    self.barrier();
    return make_communicator(mpi_split(*comm_, color, key), job_);
  }
  std::unique_ptr<Communicator> split_node(Communicator& self) override {
    self.barrier();
    return sharing_memory(make_communicator(mpi_split_node(*comm_, job_), job_));
  }
  std::shared_ptr<SharedMemory> allocate_shared(Communicator& self, std::int64_t bytes) override {
    return allocate_shared_segment(self, bytes);
  }

  [[nodiscard]] const NodeMap::Place& own() const { return nodes_.map.place_of(rank()); }
  [[nodiscard]] int node_size() const {
    return static_cast<int>(nodes_.map.ranks_of(own().node).size());
  }
  [[nodiscard]] bool is_one_node() const { return node_size() == size(); }
  [[nodiscard]] std::unique_ptr<Collectives> make_collectives();
  [[nodiscard]] std::unique_ptr<RowTransport> make_rows();

 private:
  [[nodiscard]] std::unique_ptr<RowBuffers> make_buffers();

  std::unique_ptr<MpiHandle> comm_;
  MpiJob job_;
  Nodes nodes_;
  MemoryBoard board_;
  ProcessRowBuffers::Memory memory_;  // of rows, if no other rank is to see them
};

std::unique_ptr<Collectives> NodeGroup::make_collectives() {
  if (is_one_node()) return std::make_unique<BoardCollectives>(board_);
  return std::make_unique<MpiCollectives>(*comm_, job_.policy);
}

std::unique_ptr<RowBuffers> NodeGroup::make_buffers() {
  if (node_size() == 1) return std::make_unique<ProcessRowBuffers>(memory_);
  return std::make_unique<SegmentRowBuffers>(node_size());
}

std::unique_ptr<RowTransport> NodeGroup::make_rows() {
  RowTransport::Ways ways{.pool = std::make_unique<RowPool>(make_buffers()),
                          .parts = {},
                          .have_messages = !is_one_node(),
                          .check_rows = job_.options.check_rows};
  if (!is_one_node()) {
    ways.parts.push_back(far_rows({.nodes = nodes_.map,
                                   .board = board_,
                                   .buffers = ways.pool->buffers(),
                                   .make_messages = mpi_message_maker(*comm_)}));
  }
  ways.parts.push_back(board_rows(board_, *ways.pool));
  const Waiter waiter{rank(), size(), job_.policy};
  return std::make_unique<RowTransport>(waiter, std::move(ways));
}

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<MpiHandle> comm,
                                                const MpiJob& job) {
  auto group = std::make_unique<NodeGroup>(std::move(comm), job);
  auto collectives = group->make_collectives();
  auto rows = group->make_rows();
  return std::make_unique<TransportCommunicator>(
      TransportCommunicator::Parts{.group = std::move(group),
                                   .collectives = std::move(collectives),
                                   .rows = std::move(rows),
                                   .idle = job.idle});
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(const MpiSession&,
                                                              const CommOptions& options) {
  auto world = mpi_world();
  const MpiJob job = mpi_job(*world, options);
  if (options.require_shared_memory) require_shared_memory(*world, job);
  return make_communicator(std::move(world), job);
}

}  // namespace moesaic
