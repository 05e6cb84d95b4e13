// Rows that travel with checksums (CommOptions::check_rows), and what becomes of a damaged byte.

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <numeric>

#include "base/error.h"
#include "comm/board_rows.h"
#include "comm/far_rows.h"
#include "comm/thread_communicator.h"
#include "comm/thread_messages.h"
#include "tests/comm/communicator_conformance.h"

namespace moesaic {
namespace {

struct CheckedRanks {
  int ranks;
  int per_node;
  std::int64_t check_rows;
};

class CheckedRows : public testing::TestWithParam<CheckedRanks> {};

TEST_P(CheckedRows, do_what_every_transport_must) {
  const auto [ranks, per_node, check_rows] = GetParam();
  run_thread_ranks(ranks, [](Communicator& comm) { conformance::everything(comm, 300); },
                   {.ranks_per_node = per_node, .check_rows = check_rows});
}

INSTANTIATE_TEST_SUITE_P(Sizes, CheckedRows,
                         testing::Values(CheckedRanks{3, 1, 1}, CheckedRanks{4, 2, 2}));

/// Damages a byte of each buffer whose owner has written it, when a peer looks for it.
class DamagingBuffers final : public RowBuffers {
 public:
  explicit DamagingBuffers(std::size_t victim) : victim_(victim) {}
  std::byte* reserve(std::size_t slot, std::int64_t bytes) override {
    return buffers_.reserve(slot, bytes);
  }
  [[nodiscard]] RowBufferName name(std::size_t slot) const override { return buffers_.name(slot); }
  std::byte* of_peer(int peer, const RowBufferName& name) override {
    std::byte* const buffer = buffers_.of_peer(peer, name);
    buffer[victim_] ^= std::byte{1};
    return buffer;
  }
  [[nodiscard]] bool go_with_rank() const noexcept override { return buffers_.go_with_rank(); }

 private:
  std::size_t victim_;
  ProcessRowBuffers::Memory memory_;
  ProcessRowBuffers buffers_{memory_};
};

/// Damages a byte of each message that has more than its head, after its checksums.
class DamagingMessages final : public Messages {
 public:
  explicit DamagingMessages(std::unique_ptr<Messages> base) : base_(std::move(base)) {}
  void clear() override { base_->clear(); }
  void send(int peer, int tag, std::span<const std::byte> data) override {
    sent_.emplace_back(data.begin(), data.end());
    if (data.size() > 256) sent_.back()[data.size() - 64] ^= std::byte{1};
    base_->send(peer, tag, sent_.back());
  }
  std::size_t receive(int peer, int tag, std::span<std::byte> room) override {
    return base_->receive(peer, tag, room);
  }
  bool progress() override { return base_->progress(); }
  [[nodiscard]] std::int64_t received_bytes(std::size_t number) const override {
    return base_->received_bytes(number);
  }
  [[nodiscard]] RankList unsent() const override { return base_->unsent(); }

 private:
  std::unique_ptr<Messages> base_;
  std::vector<std::vector<std::byte>> sent_;
};

constexpr std::int64_t kRowBytes = 100;
constexpr std::int64_t kRows = 4;
constexpr std::size_t kWordsBytes = 64;  // of the ranks that read them, before the rows
using Matrix = std::array<std::byte, kRowBytes * kRows>;

/// Two ranks of one thread, on a node together or each on its own, of which rank 0 sends damaged
/// rows to rank 1.
class DamagedPair {
 public:
  DamagedPair(bool is_far, std::int64_t check_rows) : is_far_(is_far), check_rows_(check_rows) {}

  /// The error that rank 1 gets from the exchange number `exchange`, the first of which is 1.
  std::string error_of_receiver(int exchange) {
    std::string message = "no error";
    for (int number = 1; number <= exchange; ++number) {
      const bool sends = number == exchange;
      std::vector<std::int32_t> rows(sends ? kRows : 0);
      std::iota(rows.begin(), rows.end(), 0);
      const std::vector<std::int64_t> to_one = {0, std::ssize(rows)};
      const std::vector<std::int64_t> nothing = {0, 0};
      const RowSend send{.base = matrix_.data(),
                         .row_bytes = kRowBytes,
                         .stride_bytes = kRowBytes,
                         .rows = rows,
                         .counts = to_one,
                         .tag_bytes = 8,
                         .label = RowLabel{.step = number, .layer = 3}.at("results")};
      RowSend silent = send;
      silent.rows = {};
      silent.counts = nothing;
      PendingRows sender = ranks_[0].rows->start(send, {});
      try {
        PendingRows receiver = ranks_[1].rows->start(silent, {});
        bool done = false;
        while (!done) {
          const bool is_sent = sender.is_done();
          done = receiver.is_done() && is_sent;
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::peer);
        message = error.what();
      }
    }
    return message;
  }

 private:
  struct Rank {
    std::unique_ptr<MemoryBoard> board;
    std::unique_ptr<RowTransport> rows;
  };

  [[nodiscard]] std::array<Rank, 2> make_ranks() {
    std::array<Rank, 2> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      const auto number = static_cast<std::size_t>(rank);
      Rank& made = ranks[number];
      const WaitPolicy policy{.timeout = std::chrono::hours(1), .idle = &idles_[number]};
      ByteBuffer& memory = boards_[is_far_ ? number : 0];
      if (memory.size() == 0) memory = ByteBuffer(MemoryBoard::bytes_needed(2, 2));
      const BoardSeat seat = is_far_ ? BoardSeat{0, 1, {rank}, 2} : BoardSeat{rank, 2, {}, 2};
      made.board = std::make_unique<MemoryBoard>(
          std::shared_ptr<std::byte>(memory.data(), [](std::byte*) {}), seat, policy);
      made.rows =
          std::make_unique<RowTransport>(Waiter{rank, 2, policy}, make_ways(rank, *made.board));
    }
    return ranks;
  }

  [[nodiscard]] RowTransport::Ways make_ways(int rank, MemoryBoard& board) {
    RowTransport::Ways ways{.pool = std::make_unique<RowPool>(make_buffers()),
                            .carriers = {},
                            .have_messages = is_far_,
                            .check_rows = check_rows_};
    if (is_far_) {
      ways.carriers.push_back(std::make_unique<FarRows>(
          FarRows::Parts{.nodes = nodes_,
                         .board = board,
                         .buffers = ways.pool->buffers(),
                         .make_messages = [make = thread_message_maker(post_, rank)] {
                           return std::make_unique<DamagingMessages>(make());
                         }}));
    }
    ways.carriers.push_back(std::make_unique<BoardRows>(board, *ways.pool));
    return ways;
  }

  [[nodiscard]] std::unique_ptr<RowBuffers> make_buffers() {
    if (is_far_) return std::make_unique<ProcessRowBuffers>(memory_.emplace_back());
    return std::make_unique<DamagingBuffers>(kWordsBytes + kRowBytes + 7);
  }

  bool is_far_;
  std::int64_t check_rows_;
  std::deque<ProcessRowBuffers::Memory> memory_;
  Matrix matrix_{};
  NodeMap nodes_{std::array{0, 1}};
  ThreadPost post_;
  std::array<ByteBuffer, 2> boards_;
  std::array<IdleTime, 2> idles_;
  std::array<Rank, 2> ranks_ = make_ranks();
};

TEST(CheckedRows, a_damaged_byte_is_told_with_sender_receiver_and_place) {
  for (const bool is_far : {false, true}) {
    const std::string message = DamagedPair(is_far, 3).error_of_receiver(3);
    EXPECT_EQ(message.substr(0, message.find(':', 60)),
              "rank 1 of 2: exchange_rows: step 3, layer 3, results: 4 rows that rank 0 sent "
              "arrived damaged")
        << message;
    EXPECT_EQ(DamagedPair(is_far, 3).error_of_receiver(4), "no error");
    EXPECT_EQ(DamagedPair(is_far, 0).error_of_receiver(3), "no error");
  }
}

}  // namespace
}  // namespace moesaic
