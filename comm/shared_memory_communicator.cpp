#include "comm/shared_memory_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "comm/board_collectives.h"
#include "comm/board_rows.h"
#include "comm/memory_board.h"
#include "comm/mpi_collectives.h"
#include "comm/mpi_groups.h"
#include "comm/mpi_rows.h"
#include "comm/segment_row_buffers.h"
#include "comm/shared_segment.h"
#include "comm/transport_communicator.h"

namespace moesaic {
namespace {

/// How long the start of an exchange waits for peers of this node to make room. Whoever is later is
/// busy: better go on and send its rows later.
constexpr std::chrono::microseconds kStartPatience(10);

/// The ranks of a group that share this rank's node.
struct Node {
  std::vector<int> members;  // [node ranks] their ranks in the group
  int rank = 0;              // this rank's on the node
  std::shared_ptr<std::byte> board;
};

/// A board that the ranks of `node` all see; null if they may not map each other's memory.
std::shared_ptr<std::byte> share_board(Communicator& node) {
  const auto bytes = static_cast<std::int64_t>(MemoryBoard::bytes_needed(node.size()));
  try {
    auto segment =
        std::make_shared<SharedSegment>(share_segment(node, bytes, SharedSegment::Home::anonymous));
    return {segment, segment->bytes().data()};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    return nullptr;
  }
}

/// Throws Error{resource} on all ranks unless those of each node may map each other's memory.
void require_shared_memory(const MpiHandle& world, const MpiJob& job) {
  const auto all = make_mpi_communicator(mpi_split(world, 0, 0), job);
  const auto node = make_mpi_communicator(mpi_split_node(world, job), job);
  std::array<char, 256> reason{};
  std::int64_t first_failed = 0;  // counted from the end, so that max finds it
  try {
    if (node->size() > 1) (void)share_segment(*node, 1, SharedSegment::Home::anonymous);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    std::string_view(error.what()).copy(reason.data(), reason.size() - 1);
    first_failed = all->size() - all->rank();
  }
  all->max(std::span(&first_failed, 1));
  if (first_failed == 0) return;
  all->broadcast(std::as_writable_bytes(std::span(reason)),
                 all->size() - static_cast<int>(first_failed));
  fail(ErrorKind::resource, "ranks of one node cannot map each other's memory: {}", reason.data());
}

Node find_node(const MpiHandle& comm, const MpiJob& job) {
  const auto ranks = make_mpi_communicator(mpi_split_node(comm, job), job);
  Node node;
  node.board = share_board(*ranks);
  if (node.board == nullptr) {  // each rank is a node of its own
    auto alone = std::make_shared<ByteBuffer>(MemoryBoard::bytes_needed(1));
    node.board = {alone, alone->data()};
    node.members = {comm.rank()};
  } else {
    const int self = comm.rank();
    node.rank = ranks->rank();
    node.members.resize(static_cast<std::size_t>(ranks->size()));
    ranks->all_gather(std::as_bytes(std::span(&self, 1)),
                      std::as_writable_bytes(std::span(node.members)));
  }
  return node;
}

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<MpiHandle> comm, const MpiJob& job);

class NodeGroup final : public RankGroup {
 public:
  NodeGroup(std::unique_ptr<MpiHandle> comm, const MpiJob& job)
      : comm_(std::move(comm)),
        job_(job),
        node_(find_node(*comm_, job_)),
        board_(node_.board, {node_.rank, node_size(), node_.members}, job_.policy) {}

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
    return make_communicator(mpi_split_node(*comm_, job_), job_);
  }
  std::shared_ptr<SharedMemory> allocate_shared(Communicator& self, std::int64_t bytes) override {
    return allocate_shared_segment(self, bytes);
  }

  [[nodiscard]] int node_size() const { return static_cast<int>(node_.members.size()); }
  [[nodiscard]] bool is_one_node() const { return node_size() == size(); }
  [[nodiscard]] std::unique_ptr<Collectives> make_collectives();
  [[nodiscard]] std::unique_ptr<RowTransport> make_rows();

 private:
  std::unique_ptr<MpiHandle> comm_;
  MpiJob job_;
  Node node_;
  MemoryBoard board_;
};

std::unique_ptr<Collectives> NodeGroup::make_collectives() {
  if (is_one_node()) return std::make_unique<BoardCollectives>(board_);
  return std::make_unique<MpiCollectives>(*comm_, job_.policy);
}

std::unique_ptr<RowTransport> NodeGroup::make_rows() {
  RowTransport::Ways ways{.buffers = std::make_unique<SegmentRowBuffers>(node_size()),
                          .carriers = {},
                          .patience = is_one_node() ? kStartPatience : kStartPatience * 0};
  std::vector<int> far = other_ranks(*comm_);
  std::erase_if(
      far, [&](int rank) { return std::ranges::find(node_.members, rank) != node_.members.end(); });
  if (!far.empty()) ways.carriers.push_back(std::make_unique<MpiRows>(*comm_, std::move(far)));
  ways.carriers.push_back(std::make_unique<BoardRows>(board_, *ways.buffers));
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
