#include "comm/thread_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/buffer.h"
#include "comm/board_collectives.h"
#include "comm/board_rows.h"
#include "comm/memory_board.h"
#include "comm/pending_exchange.h"
#include "comm/row_send.h"

namespace moesaic {
namespace {

/// What the threads of all groups of one run share.
struct Run {
  Run(const CommOptions& its_options, int ranks) : options(its_options), num_ranks(ranks) {}

  CommOptions options;
  int num_ranks;
  std::atomic<int> failed_rank{-1};
};

/// What the ranks of one group share. The receive buffers live here so that a sender never writes
/// to the memory of a rank that has left.
struct Group {
  Group(std::shared_ptr<Run> its_run, std::vector<int> its_run_ranks)
      : run(std::move(its_run)),
        run_ranks(std::move(its_run_ranks)),
        board(MemoryBoard::bytes_needed(size())),
        buffers(run_ranks.size()),
        made(run_ranks.size()) {}

  [[nodiscard]] int size() const { return static_cast<int>(run_ranks.size()); }

  std::shared_ptr<Run> run;
  std::vector<int> run_ranks;  // [size] the ranks' numbers in the run
  ByteBuffer board;
  std::vector<std::array<ByteBuffer, 2>> buffers;  // [size]
  std::vector<std::shared_ptr<void>> made;         // [size] on its way from its maker to the others
};

class ThreadRowBuffers final : public RowBuffers {
 public:
  explicit ThreadRowBuffers(std::array<ByteBuffer, 2>& own) : own_(own) {}

  std::byte* reserve(std::size_t parity, std::int64_t bytes) override {
    const auto needed = static_cast<std::size_t>(bytes);
    if (own_[parity].size() < needed) {
      own_[parity] = ByteBuffer();
      own_[parity] = ByteBuffer(needed + needed / 4);
    }
    return own_[parity].data();
  }
  [[nodiscard]] RowBufferName name(std::size_t parity) const override {
    return {reinterpret_cast<std::uintptr_t>(own_[parity].data())};
  }
  std::byte* of_peer(int, std::size_t, const RowBufferName& name) override {
    return reinterpret_cast<std::byte*>(name[0]);
  }

 private:
  std::array<ByteBuffer, 2>& own_;
};

class ThreadSharedMemory final : public SharedMemory {
 public:
  explicit ThreadSharedMemory(std::int64_t bytes) : memory_(static_cast<std::size_t>(bytes)) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return memory_.span(); }

 private:
  ByteBuffer memory_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank, std::shared_ptr<IdleTime> idle)
      : group_(std::move(group)),
        idle_(std::move(idle)),
        board_(std::shared_ptr<std::byte>(group_, group_->board.data()), {rank, group_->size(), {}},
               policy_of(*group_, *idle_)),
        collectives_(board_),
        buffers_(group_->buffers[static_cast<std::size_t>(rank)]) {}

  [[nodiscard]] int rank() const noexcept override { return board_.rank(); }
  [[nodiscard]] int size() const noexcept override { return board_.size(); }
  [[nodiscard]] std::string transport() const override { return "threads"; }

  std::unique_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Communicator> split_node() override {
    const int per_node = group_->run->options.ranks_per_node;
    const int run_rank = group_->run_ranks[static_cast<std::size_t>(rank())];
    return split(per_node > 0 ? run_rank / per_node : 0, 0);
  }
  void barrier() override { collectives_.barrier(); }
  void broadcast(std::span<std::byte> data, int root) override {
    collectives_.broadcast(data, root);
  }
  void sum(std::span<float> values) override { collectives_.sum(values); }
  void sum(std::span<std::int64_t> values) override { collectives_.sum(values); }
  void max(std::span<std::int64_t> values) override { collectives_.max(values); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    collectives_.all_gather(send, recv);
  }
  void exchange_counts(std::span<const std::int64_t> send, std::span<std::int64_t> recv) override {
    collectives_.exchange_counts(send, recv);
  }
  [[nodiscard]] std::unique_ptr<PendingRows> exchange_rows(
      const RowSend& send, std::span<const std::int64_t> recv_counts) override;
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    return made_by<ThreadSharedMemory>(0, bytes);
  }

 private:
  /// What rank `maker` makes, for all ranks that name this maker.
  template <typename T, typename... Args>
  std::shared_ptr<T> made_by(int maker, Args&&... args) {
    std::shared_ptr<void>& slot = group_->made[static_cast<std::size_t>(maker)];
    if (rank() == maker) slot = std::make_shared<T>(std::forward<Args>(args)...);
    barrier();
    auto made = std::static_pointer_cast<T>(slot);
    barrier();
    if (rank() == maker) slot.reset();
    return made;
  }

  static WaitPolicy policy_of(const Group& group, IdleTime& idle) {
    WaitPolicy policy = wait_policy(group.run->options.timeout, group.run->num_ranks, idle);
    policy.failed_rank = &group.run->failed_rank;
    return policy;
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<IdleTime> idle_;  // of this thread, in all its groups
  MemoryBoard board_;
  BoardCollectives collectives_;
  ThreadRowBuffers buffers_;
  std::uint64_t exchanges_ = 0;
};

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  struct Member {
    int color, key, rank;
  };
  const Member self{color, key, rank()};
  std::vector<Member> members(static_cast<std::size_t>(size()));
  all_gather(std::as_bytes(std::span(&self, 1)), std::as_writable_bytes(std::span(members)));
  std::erase_if(members, [&](const Member& member) { return member.color != color; });
  std::ranges::stable_sort(members, {}, &Member::key);
  std::vector<int> run_ranks;
  int new_rank = 0;
  for (const Member& member : members) {
    if (member.rank == rank()) new_rank = static_cast<int>(run_ranks.size());
    run_ranks.push_back(group_->run_ranks[static_cast<std::size_t>(member.rank)]);
  }
  auto group = made_by<Group>(members.front().rank, group_->run, std::move(run_ranks));
  return std::make_unique<ThreadCommunicator>(std::move(group), new_rank, idle_);
}

std::unique_ptr<PendingRows> ThreadCommunicator::exchange_rows(
    const RowSend& send, std::span<const std::int64_t> recv_counts) {
  check_row_exchange(send, recv_counts, rank(), size());
  const std::vector<RowPlacement> placements = place_rows(recv_counts, send.row_bytes);
  const std::int64_t total_bytes = placed_bytes(placements);
  const auto rows = rows_of_peers(send);
  std::vector<BoardRows> to_send;
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();  // not all at the same receiver
    const auto& part = rows[static_cast<std::size_t>(peer)];
    if (!part.empty()) to_send.push_back({peer, part});
  }
  const std::uint64_t exchange = ++exchanges_;
  const std::byte* received = buffers_.reserve(exchange & 1, total_bytes);
  auto transfer = std::make_unique<BoardExchange>(board_, buffers_, exchange);
  transfer->start(send, std::move(to_send), placements);
  transfer->send_ready_soon();
  return std::make_unique<PendingExchange>(
      PendingExchange::Waiter{rank(), size(), board_.policy()}, std::move(transfer),
      std::span(received, static_cast<std::size_t>(total_bytes)));
}

std::vector<std::unique_ptr<Communicator>> communicators_of(const std::shared_ptr<Run>& run) {
  require(run->num_ranks >= 1, ErrorKind::usage, "a group of {} ranks", run->num_ranks);
  std::vector<int> run_ranks(static_cast<std::size_t>(run->num_ranks));
  std::iota(run_ranks.begin(), run_ranks.end(), 0);
  const auto group = std::make_shared<Group>(run, std::move(run_ranks));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < run->num_ranks; ++rank) {
    ranks.push_back(
        std::make_unique<ThreadCommunicator>(group, rank, std::make_shared<IdleTime>()));
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
