#include "comm/thread_communicator.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/buffer.h"
#include "comm/board_collectives.h"
#include "comm/board_rows.h"
#include "comm/far_rows.h"
#include "comm/memory_board.h"
#include "comm/node_map.h"
#include "comm/own_memory.h"
#include "comm/row_buffers.h"
#include "comm/thread_messages.h"
#include "comm/thread_roll_call.h"
#include "comm/transport_communicator.h"

namespace moesaic {
namespace {

/// What the threads of all groups of one run share.
struct Run {
  Run(const CommOptions& its_options, int ranks) : options(its_options), num_ranks(ranks) {}

  CommOptions options;
  int num_ranks;
  std::atomic<int> failed_rank{-1};
  std::shared_ptr<ThreadRollCall::Reports> reports;  // if each rank has a thread
};

/// What the ranks of one group share. The row buffers live here so that nobody ever reads the
/// memory of a rank that has left.
struct Group {
  Group(std::shared_ptr<Run> its_run, std::vector<int> its_run_ranks)
      : run(std::move(its_run)),
        run_ranks(std::move(its_run_ranks)),
        nodes(node_ids()),
        board(MemoryBoard::bytes_needed(size(), size())),
        buffers(run_ranks.size()),
        made(run_ranks.size()) {
    if (nodes.nodes.size() == 1) return;
    for (const std::vector<int>& ranks : nodes.nodes) {
      node_boards.emplace_back(MemoryBoard::bytes_needed(static_cast<int>(ranks.size()), size()));
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(run_ranks.size()); }
  /// What node_of() says of each rank.
  [[nodiscard]] std::vector<int> node_ids() const {
    std::vector<int> ids;
    for (const int run_rank : run_ranks) ids.push_back(node_of(run_rank));
    return ids;
  }
  [[nodiscard]] int node_of(int run_rank) const {
    return run->options.ranks_per_node > 0 ? run_rank / run->options.ranks_per_node : 0;
  }

  std::shared_ptr<Run> run;
  std::vector<int> run_ranks;  // [size] the ranks' numbers in the run
  NodeMap nodes;
  ByteBuffer board;                                // for all ranks
  std::vector<ByteBuffer> node_boards;             // [nodes] if there are several
  ThreadPost post;                                 // between nodes
  std::vector<ProcessRowBuffers::Memory> buffers;  // [size]
  std::vector<std::shared_ptr<void>> made;         // [size] on its way from its maker to the others
};

WaitPolicy policy_of(const std::shared_ptr<Group>& group, IdleTime& idle) {
  Run& run = *group->run;
  WaitPolicy policy = wait_policy(run.options.timeout, run.num_ranks, usable_processors(), idle);
  policy.failed_rank = &run.failed_rank;
  policy.job_ranks = {group, &group->run_ranks};
  return policy;
}

/// A rank's place in a group.
class ThreadGroup final : public RankGroup {
 public:
  ThreadGroup(std::shared_ptr<Group> group, int rank, std::shared_ptr<IdleTime> idle)
      : group_(std::move(group)),
        idle_(std::move(idle)),
        board_(std::shared_ptr<std::byte>(group_, group_->board.data()),
               {rank, group_->size(), {}, group_->size()}, policy_of(group_, *idle_)),
        node_board_(make_node_board()) {}

  [[nodiscard]] int rank() const noexcept override { return board_.rank(); }
  [[nodiscard]] int size() const noexcept override { return board_.size(); }
  [[nodiscard]] std::string transport() const override { return "threads"; }

  std::unique_ptr<Communicator> split(Communicator& self, int color, int key) override;
  std::unique_ptr<Communicator> split_node(Communicator& self) override {
    return split(self, group_->node_of(group_->run_ranks[static_cast<std::size_t>(rank())]), 0);
  }
  std::shared_ptr<SharedMemory> allocate_shared(Communicator& self, std::int64_t bytes) override {
    return made_by<OwnMemory>(self, 0, bytes);
  }

  [[nodiscard]] MemoryBoard& board() noexcept { return board_; }
  [[nodiscard]] std::unique_ptr<RowTransport> make_rows();

 private:
  [[nodiscard]] std::unique_ptr<MemoryBoard> make_node_board() const;
  /// What rank `maker` makes, for all ranks that name this maker.
  template <typename T, typename... Args>
  std::shared_ptr<T> made_by(Communicator& self, int maker, Args&&... args) {
    std::shared_ptr<void>& slot = group_->made[static_cast<std::size_t>(maker)];
    if (rank() == maker) slot = std::make_shared<T>(std::forward<Args>(args)...);
    self.barrier();
    auto made = std::static_pointer_cast<T>(slot);
    self.barrier();
    if (rank() == maker) slot.reset();
    return made;
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<IdleTime> idle_;  // of this thread, in all its groups
  MemoryBoard board_;
  std::unique_ptr<MemoryBoard> node_board_;  // null if all ranks share a node
};

std::unique_ptr<MemoryBoard> ThreadGroup::make_node_board() const {
  if (group_->node_boards.empty()) return nullptr;
  const NodeMap::Place& place = group_->nodes.place_of(board_.rank());
  const std::vector<int>& ranks = group_->nodes.ranks_of(place.node);
  const BoardSeat seat{place.rank, static_cast<int>(ranks.size()), ranks, group_->size()};
  return std::make_unique<MemoryBoard>(
      std::shared_ptr<std::byte>(group_, group_->node_boards[place.node].data()), seat,
      board_.policy());
}

std::unique_ptr<RowTransport> ThreadGroup::make_rows() {
  ProcessRowBuffers::Memory& memory = group_->buffers[static_cast<std::size_t>(rank())];
  RowTransport::Ways ways{
      .pool = std::make_unique<RowPool>(std::make_unique<ProcessRowBuffers>(memory)),
      .parts = {},
      .have_messages = node_board_ != nullptr,
      .check_rows = group_->run->options.check_rows};
  MemoryBoard& board = node_board_ == nullptr ? board_ : *node_board_;
  if (node_board_ != nullptr) {
    ways.parts.push_back(far_rows({.nodes = group_->nodes,
                                   .board = board,
                                   .buffers = ways.pool->buffers(),
                                   .make_messages = thread_message_maker(group_->post, rank())}));
  }
  ways.parts.push_back(board_rows(board, *ways.pool));
  return std::make_unique<RowTransport>(Waiter{rank(), size(), board_.policy()}, std::move(ways));
}

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group, int rank,
                                                const std::shared_ptr<IdleTime>& idle) {
  auto place = std::make_unique<ThreadGroup>(std::move(group), rank, idle);
  auto collectives = std::make_unique<BoardCollectives>(place->board());
  auto rows = place->make_rows();
  return std::make_unique<TransportCommunicator>(
      TransportCommunicator::Parts{.group = std::move(place),
                                   .collectives = std::move(collectives),
                                   .rows = std::move(rows),
                                   .idle = idle});
}

std::unique_ptr<Communicator> ThreadGroup::split(Communicator& self, int color, int key) {
  struct Member {
    int color, key, rank;
  };
  const Member mine{color, key, rank()};
  std::vector<Member> members(static_cast<std::size_t>(size()));
  self.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(members)));
  std::erase_if(members, [&](const Member& member) { return member.color != color; });
  std::ranges::stable_sort(members, {}, &Member::key);
  std::vector<int> run_ranks;
  int new_rank = 0;
  for (const Member& member : members) {
    if (member.rank == rank()) new_rank = static_cast<int>(run_ranks.size());
    run_ranks.push_back(group_->run_ranks[static_cast<std::size_t>(member.rank)]);
  }
  auto group = made_by<Group>(self, members.front().rank, group_->run, std::move(run_ranks));
  return make_communicator(std::move(group), new_rank, idle_);
}

std::vector<std::unique_ptr<Communicator>> communicators_of(const std::shared_ptr<Run>& run) {
  require(run->num_ranks >= 1, ErrorKind::usage, "a group of {} ranks", run->num_ranks);
  std::vector<int> run_ranks(static_cast<std::size_t>(run->num_ranks));
  std::iota(run_ranks.begin(), run_ranks.end(), 0);
  const auto group = std::make_shared<Group>(run, std::move(run_ranks));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < run->num_ranks; ++rank) {
    const auto idle = std::make_shared<IdleTime>();
    if (run->reports) idle->set_roll_call(std::make_unique<ThreadRollCall>(rank, run->reports));
    ranks.push_back(make_communicator(group, rank, idle));
  }
  return ranks;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size,
                                                                     const CommOptions& options) {
  return communicators_of(std::make_shared<Run>(options, size));
}

void run_thread_ranks(int size, const std::function<void(Communicator&)>& body,
                      const CommOptions& options) {
  const auto run = std::make_shared<Run>(options, size);
  if (size > 1) run->reports = std::make_shared<ThreadRollCall::Reports>(size);
  const auto ranks = communicators_of(run);
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto play = [&](Communicator& rank) {
    try {
      body(rank);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first_error) return;
      first_error = std::current_exception();
      run->failed_rank = rank.rank();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const auto& rank : ranks) threads.emplace_back([&] { play(*rank); });
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace moesaic
