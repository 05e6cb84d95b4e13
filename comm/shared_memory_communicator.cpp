#include "comm/shared_memory_communicator.h"

#include <array>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "comm/board_collectives.h"
#include "comm/board_rows.h"
#include "comm/memory_board.h"
#include "comm/mpi_collectives.h"
#include "comm/mpi_groups.h"
#include "comm/mpi_rows.h"
#include "comm/pending_exchange.h"
#include "comm/row_send.h"
#include "comm/segment_row_buffers.h"
#include "comm/shared_segment.h"

namespace moesaic {
namespace {

constexpr int kElsewhere = -1;

/// The ranks of a group that share this rank's node.
struct Node {
  std::vector<int> members;     // [node ranks] their ranks in the group
  std::vector<int> node_ranks;  // [group] rank on this node, or kElsewhere
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

Node find_node(const MpiHandle& comm, const MpiJob& job) {
  const auto ranks = make_mpi_communicator(mpi_split_node(comm, job), job);
  Node node;
  node.node_ranks.assign(static_cast<std::size_t>(comm.size()), kElsewhere);
  node.board = share_board(*ranks);
  if (node.board == nullptr) {  // each rank is a node of its own
    auto alone = std::make_shared<ByteBuffer>(MemoryBoard::bytes_needed(1));
    node.board = {alone, alone->data()};
    node.members = {comm.rank()};
  } else {
    const int self = comm.rank();
    node.members.resize(static_cast<std::size_t>(ranks->size()));
    ranks->all_gather(std::as_bytes(std::span(&self, 1)),
                      std::as_writable_bytes(std::span(node.members)));
  }
  for (std::size_t i = 0; i < node.members.size(); ++i) {
    node.node_ranks[static_cast<std::size_t>(node.members[i])] = static_cast<int>(i);
  }
  return node;
}

/// Rows over the board to the ranks of this node, over MPI to the others.
class MixedExchange final : public RowExchange {
 public:
  MixedExchange(BoardExchange near, MpiExchange far)
      : near_(std::move(near)), far_(std::move(far)) {}

  bool progress() override {
    const bool near_done = near_.progress();
    return far_.progress() && near_done;
  }
  [[nodiscard]] std::string missing() const override {
    const std::string near = near_.missing();
    const std::string far = far_.missing();
    return near.empty() || far.empty() ? near + far : near + " and " + far;
  }

 private:
  BoardExchange near_;
  MpiExchange far_;
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(std::unique_ptr<MpiHandle> comm, const MpiJob& job)
      : comm_(std::move(comm)),
        job_(job),
        far_(*comm_, job_.policy),
        node_(find_node(*comm_, job_)),
        board_(node_.board, {node_.node_ranks[self()], node_size(), node_.members}, job_.policy),
        near_(board_),
        buffers_(node_size()) {}

  [[nodiscard]] int rank() const noexcept override { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept override { return comm_->size(); }
  [[nodiscard]] std::string transport() const override {
    if (is_one_node()) return "shared memory";
    return node_size() == 1 ? "mpi" : "shared memory and mpi";
  }

  // MPI's split has no deadline of its own: the barrier finds the rank that does not come.
  std::unique_ptr<Communicator> split(int color, int key) override {
    barrier();
    return std::make_unique<SharedMemoryCommunicator>(mpi_split(*comm_, color, key), job_);
  }
  std::unique_ptr<Communicator> split_node() override {
    barrier();
    return std::make_unique<SharedMemoryCommunicator>(mpi_split_node(*comm_, job_), job_);
  }
  void barrier() override {
    on_transport([](auto& calls) { calls.barrier(); });
  }
  void broadcast(std::span<std::byte> data, int root) override {
    on_transport([&](auto& calls) { calls.broadcast(data, root); });
  }
  void sum(std::span<float> values) override {
    on_transport([&](auto& calls) { calls.sum(values); });
  }
  void sum(std::span<std::int64_t> values) override {
    on_transport([&](auto& calls) { calls.sum(values); });
  }
  void max(std::span<std::int64_t> values) override {
    on_transport([&](auto& calls) { calls.max(values); });
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    on_transport([&](auto& calls) { calls.all_gather(send, recv); });
  }
  void exchange_counts(std::span<const std::int64_t> send, std::span<std::int64_t> recv) override {
    on_transport([&](auto& calls) { calls.exchange_counts(send, recv); });
  }
  [[nodiscard]] std::unique_ptr<PendingRows> exchange_rows(
      const RowSend& send, std::span<const std::int64_t> recv_counts) override;
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    return allocate_shared_segment(*this, bytes);
  }

 private:
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(rank()); }
  [[nodiscard]] int node_size() const { return static_cast<int>(node_.members.size()); }
  [[nodiscard]] bool is_one_node() const { return node_size() == size(); }

  template <typename Call>
  void on_transport(Call&& call) {
    if (is_one_node()) {
      call(near_);
    } else {
      call(far_);
    }
  }

  BoardExchange start_near(const RowSend& send, std::span<const RowPlacement> placements);
  MpiExchange start_far(const RowSend& send, std::span<const RowPlacement> placements,
                        std::byte* received);

  std::unique_ptr<MpiHandle> comm_;
  MpiJob job_;
  MpiCollectives far_;
  Node node_;
  MemoryBoard board_;
  BoardCollectives near_;
  SegmentRowBuffers buffers_;
  std::array<Buffer<std::byte>, 2> packed_;  // for MPI, of the odd and the even exchanges
  std::uint64_t exchanges_ = 0;
};

MpiExchange SharedMemoryCommunicator::start_far(const RowSend& send,
                                                std::span<const RowPlacement> placements,
                                                std::byte* received) {
  MpiExchange exchange(*comm_, exchanges_);
  const auto rows = rows_of_peers(send);
  std::int64_t packed_rows = 0;
  for (int step = 1; step < size(); ++step) {
    const auto peer = static_cast<std::size_t>((rank() + size() - step) % size());
    if (node_.node_ranks[peer] != kElsewhere) continue;
    packed_rows += static_cast<std::int64_t>(rows[peer].size());
    const RowPlacement& place = placements[peer];
    exchange.receive(static_cast<int>(peer),
                     {received + place.offset_bytes, static_cast<std::size_t>(place.bytes)});
  }
  Buffer<std::byte>& packed = packed_[exchanges_ & 1];
  packed.reserve(packed_rows * send.row_bytes);
  std::byte* next = packed.data();
  for (int step = 1; step < size(); ++step) {  // not all to the same receiver at once
    const auto peer = static_cast<std::size_t>((rank() + step) % size());
    if (node_.node_ranks[peer] != kElsewhere) continue;
    exchange.send(static_cast<int>(peer), send, rows[peer], next);
    next += static_cast<std::int64_t>(rows[peer].size()) * send.row_bytes;
  }
  return exchange;
}

BoardExchange SharedMemoryCommunicator::start_near(const RowSend& send,
                                                   std::span<const RowPlacement> placements) {
  std::vector<RowPlacement> near_placements;  // [node ranks]
  for (const int member : node_.members) {
    near_placements.push_back(placements[static_cast<std::size_t>(member)]);
  }
  const auto rows = rows_of_peers(send);
  std::vector<BoardRows> to_send;
  for (int step = 1; step < node_size(); ++step) {
    const int node_rank = (board_.rank() + step) % node_size();
    const int peer = node_.members[static_cast<std::size_t>(node_rank)];
    const auto& part = rows[static_cast<std::size_t>(peer)];
    if (!part.empty()) to_send.push_back({node_rank, part});
  }
  BoardExchange exchange(board_, buffers_, exchanges_);
  exchange.start(send, std::move(to_send), near_placements);
  return exchange;
}

std::unique_ptr<PendingRows> SharedMemoryCommunicator::exchange_rows(
    const RowSend& send, std::span<const std::int64_t> recv_counts) {
  check_row_exchange(send, recv_counts, rank(), size());
  ++exchanges_;
  const std::vector<RowPlacement> placements = place_rows(recv_counts, send.row_bytes);
  std::byte* received = buffers_.reserve(exchanges_ & 1, placed_bytes(placements));
  MpiExchange far = start_far(send, placements, received);
  BoardExchange near = start_near(send, placements);
  near.send_ready_soon();
  return std::make_unique<PendingExchange>(
      PendingExchange::Waiter{rank(), size(), job_.policy},
      std::make_unique<MixedExchange>(std::move(near), std::move(far)),
      std::span(received, static_cast<std::size_t>(placed_bytes(placements))));
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(const MpiSession&,
                                                              const CommOptions& options) {
  auto world = mpi_world();
  const MpiJob job = mpi_job(*world, options);
  return std::make_unique<SharedMemoryCommunicator>(std::move(world), job);
}

}  // namespace moesaic
