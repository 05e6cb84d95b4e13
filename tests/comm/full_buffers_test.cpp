// Memory of rows that the system does not let grow: an error, whichever way the rows go.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/buffer.h"
#include "base/error.h"
#include "comm/board_rows.h"
#include "comm/far_rows.h"
#include "comm/row_arena.h"
#include "comm/row_transport.h"
#include "comm/segment_row_buffers.h"
#include "comm/thread_messages.h"
#include "tests/support/file_size_limit.h"

namespace moesaic {
namespace {

using test::FileSizeLimit;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLimit = 3 * kMiB;  // a segment has 2 MiB or more

/// That `grow` is refused for want of room, and for nothing else.
template <typename Grow>
void expect_refusal(Grow&& grow) {
  const FileSizeLimit limit(kLimit);
  try {
    grow();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(error.what()).find("shared memory: no room for 12.0 MiB: File too large"),
              std::string::npos)
        << error.what();
  }
}

TEST(FullBuffers, a_segment_that_cannot_grow_is_an_error) {
  SegmentRowBuffers buffers(1);
  const std::size_t slot = buffers.new_slot();
  std::memset(buffers.reserve(slot, kMiB), 1, kMiB);
  expect_refusal([&] { (void)buffers.reserve(slot, 8 * kMiB); });
  std::memset(buffers.reserve(slot, 8 * kMiB), 1, 8 * kMiB);
  for (const SharedSegment::Home home :
       {SharedSegment::Home::anonymous, SharedSegment::Home::dev_shm}) {
    expect_refusal([&] { (void)SharedSegment::create(home, 12 * kMiB); });
  }
}

TEST(FullBuffers, what_an_arena_has_stays_when_it_cannot_grow) {
  SegmentRowBuffers buffers(1);
  RowArena arena(buffers);
  const RowArena::Piece piece = arena.allocate(1000);
  std::memset(piece.data, 7, 1000);
  expect_refusal([&] { (void)arena.allocate(8 * kMiB); });
  EXPECT_EQ(piece.data[999], std::byte{7});
  (void)arena.allocate(8 * kMiB);
  EXPECT_EQ(piece.data[0], std::byte{7});
}

constexpr std::int64_t kLongRowBytes = kMiB / 4;

/// Two ranks of one thread with segments for their rows, on a node together or each on its own.
class SegmentPair {
 public:
  explicit SegmentPair(bool is_far) : is_far_(is_far) {}

  /// Rank 0 sends so many rows to rank 1.
  void send(std::int64_t num_rows) {
    std::vector<std::byte> matrix(static_cast<std::size_t>(num_rows * kLongRowBytes), std::byte{5});
    std::vector<std::int32_t> rows(static_cast<std::size_t>(num_rows));
    std::iota(rows.begin(), rows.end(), 0);
    const std::array<std::int64_t, 2> to_one = {0, num_rows};
    const std::array<std::int64_t, 2> nothing = {0, 0};
    const RowSend send{.base = matrix.data(),
                       .row_bytes = kLongRowBytes,
                       .stride_bytes = kLongRowBytes,
                       .rows = rows,
                       .counts = to_one};
    RowSend silent = send;
    silent.rows = {};
    silent.counts = nothing;
    PendingRows sender = ranks_[0].rows->start(send, {});
    PendingRows receiver = ranks_[1].rows->start(silent, {});
    for (bool done = false; !done;) {
      const bool is_sent = sender.is_done();
      done = receiver.is_done() && is_sent;
    }
    for (const std::byte* row : receiver.wait().rows) {
      EXPECT_EQ(row[kLongRowBytes - 1], std::byte{5});
    }
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
      const WaitPolicy policy{.timeout = std::chrono::hours(1), .idle = &idles_[number]};
      ByteBuffer& memory = boards_[is_far_ ? number : 0];
      if (memory.size() == 0) memory = ByteBuffer(MemoryBoard::bytes_needed(2, 2));
      const BoardSeat seat = is_far_ ? BoardSeat{0, 1, {rank}, 2} : BoardSeat{rank, 2, {}, 2};
      ranks[number].board = std::make_unique<MemoryBoard>(
          std::shared_ptr<std::byte>(memory.data(), [](std::byte*) {}), seat, policy);
      ranks[number].rows = std::make_unique<RowTransport>(Waiter{rank, 2, policy},
                                                          make_ways(rank, *ranks[number].board));
    }
    return ranks;
  }

  [[nodiscard]] RowTransport::Ways make_ways(int rank, MemoryBoard& board) {
    RowTransport::Ways ways{
        .pool = std::make_unique<RowPool>(std::make_unique<SegmentRowBuffers>(2)),
        .carriers = {},
        .have_messages = is_far_};
    if (is_far_) {
      ways.carriers.push_back(std::make_unique<FarRows>(
          FarRows::Parts{.nodes = nodes_,
                         .board = board,
                         .buffers = ways.pool->buffers(),
                         .make_messages = thread_message_maker(post_, rank)}));
    }
    ways.carriers.push_back(std::make_unique<BoardRows>(board, *ways.pool));
    return ways;
  }

  bool is_far_;
  NodeMap nodes_{std::array{0, 1}};
  ThreadPost post_;
  std::array<ByteBuffer, 2> boards_;
  std::array<IdleTime, 2> idles_;
  std::array<Rank, 2> ranks_ = make_ranks();
};

TEST(FullBuffers, rows_in_a_node_that_find_no_room_are_an_error) {
  SegmentPair ranks(false);
  ranks.send(2);
  expect_refusal([&] { ranks.send(32); });
}

TEST(FullBuffers, messages_of_other_nodes_that_find_no_room_are_an_error) {
  SegmentPair ranks(true);
  ranks.send(2);
  expect_refusal([&] { ranks.send(32); });
}

}  // namespace
}  // namespace moesaic
