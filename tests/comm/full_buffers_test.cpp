// Memory of rows that the system does not let grow: an error, whichever way the rows go.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "comm/row_arena.h"
#include "comm/segment_row_buffers.h"
#include "tests/comm/transport_pair.h"
#include "tests/support/file_size_limit.h"

namespace moesaic {
namespace {

using test::FileSizeLimit;
using test::TransportPair;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kFileLimit = 3 * kMiB;  // a segment has 2 MiB or more

/// That `grow` is refused for want of room, and for nothing else.
template <typename Grow>
void expect_refusal(Grow&& grow) {
  const FileSizeLimit limit(kFileLimit);
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

TEST(FullBuffers, a_segment_that_is_gone_was_that_of_a_rank_that_is_gone) {
  SegmentRowBuffers reader(2);
  RowBufferName name{};
  {
    SegmentRowBuffers owner(2);
    (void)owner.reserve(owner.new_slot(), kMiB);
    name = owner.name(0);
  }
  try {
    (void)reader.of_peer(1, name);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer);
    EXPECT_EQ(std::string(error.what()).find("process "), 0U) << error.what();
  }
}

constexpr std::int64_t kLongRowBytes = kMiB / 4;

/// Rank 0 sends so many rows to rank 1.
void send(TransportPair& ranks, std::int64_t num_rows) {
  const std::vector<std::byte> matrix(static_cast<std::size_t>(num_rows * kLongRowBytes),
                                      std::byte{5});
  std::vector<std::int32_t> rows(static_cast<std::size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  const std::array<std::int64_t, 2> to_one = {0, num_rows};
  ranks.run({.base = matrix.data(),
             .row_bytes = kLongRowBytes,
             .stride_bytes = kLongRowBytes,
             .rows = rows,
             .counts = to_one},
            [](const ReceivedRows& received) {
              for (const std::byte* row : received.rows) {
                EXPECT_EQ(row[kLongRowBytes - 1], std::byte{5});
              }
            });
}

void expect_that_rows_are_refused(bool is_far) {
  TransportPair ranks(
      {.is_far = is_far, .make_buffers = [] { return std::make_unique<SegmentRowBuffers>(2); }});
  send(ranks, 2);
  expect_refusal([&] { send(ranks, 32); });
}

TEST(FullBuffers, rows_in_a_node_that_find_no_room_are_an_error) {
  expect_that_rows_are_refused(false);
}

TEST(FullBuffers, messages_of_other_nodes_that_find_no_room_are_an_error) {
  expect_that_rows_are_refused(true);
}

}  // namespace
}  // namespace moesaic
