// Messages between nodes as bytes: how they are cut, and what is refused.

#include "comm/far_message.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/comm/transport_pair.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

constexpr FarName kName{.receiver = 1, .sender = 0};
const std::string kIt = "rank 1: exchange_rows: the message of rank 0";

FarHeader header_of(std::int64_t rows, bool rows_come_later = false) {
  FarHeader header;
  header.row_bytes = 4096;
  header.tag_bytes = 32;
  header.num_rows = rows;
  header.num_ranks = 2;
  header.has_places = 1;
  header.num_places = rows + 1;
  cut_far_message(header, rows_come_later);
  return header;
}

TEST(FarMessage, is_cut_into_one_message_and_announced_pieces) {
  const FarLayout one = far_layout(header_of(1));
  EXPECT_EQ(one.end, 192 + 4096);  // 96 + 2 * 8 + 2 * 4 + 32 = 152
  EXPECT_EQ(one.num_messages(), 1);
  const FarLayout many = far_layout(header_of(1000));
  EXPECT_EQ(many.first_bytes, kFarPieceBytes);
  EXPECT_EQ(many.piece_bytes, kFarPieceBytes);
  std::int64_t begin = 0;
  for (std::int64_t message = 0; message < many.num_messages(); ++message) {
    EXPECT_EQ(many.message_begin(message), begin);
    EXPECT_EQ(many.message_at(begin), message);
    begin = many.message_begin(message + 1);
    EXPECT_EQ(many.message_at(begin - 1), message);
  }
  EXPECT_EQ(begin, many.end);
}

TEST(FarMessage, does_not_wait_for_rows_that_come_later) {
  const FarLayout later = far_layout(header_of(1000, true));
  EXPECT_EQ(later.first_bytes, later.rows);
  EXPECT_EQ(later.piece_bytes, kFarPieceBytes);
  EXPECT_EQ(far_layout(header_of(1, true)).num_messages(), 1);
}

TEST(FarMessage, has_less_than_so_many_pieces_however_long_it_is) {
  const FarHeader header = header_of(std::int64_t{1} << 20);
  EXPECT_LE(far_layout(header).num_messages(), kFarMessages);
  EXPECT_GT(header.piece_bytes, 4 * kFarPieceBytes);
}

/// What read_far_header says of a header after `change`, in a message of the right length.
template <typename Change>
std::string refusal_of(Change&& change) {
  FarHeader header = header_of(3);
  const auto bytes = static_cast<std::size_t>(header.first_bytes);
  change(header);
  std::vector<std::byte> message(bytes);
  std::memcpy(message.data(), &header, sizeof header);
  try {
    (void)read_far_header(message, kName);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer);
    return error.what();
  }
  return "";
}

TEST(FarMessage, impossible_headers_are_refused) {
  EXPECT_EQ(refusal_of([](FarHeader&) {}), "");
  EXPECT_EQ(refusal_of([](FarHeader& h) { h.magic = 1; }),
            kIt + " begins with 0x1 in place of 0x31776f7261736f6d");
  EXPECT_EQ(refusal_of([](FarHeader& h) { h.num_rows = -3; }), kIt + " has num_rows = -3");
  EXPECT_EQ(refusal_of([](FarHeader& h) { h.num_places = std::int64_t{1} << 40; }),
            kIt + " has num_places = 1099511627776");
  EXPECT_EQ(refusal_of([](FarHeader& h) { h.num_rows = 2000000000; }),
            kIt + " has piece_bytes = 65280, for 8256000000128 bytes");
  EXPECT_EQ(refusal_of([](FarHeader& h) { h.first_bytes -= 64; }),
            kIt + " has first_bytes = 12480; 12544 of 12544 bytes came");
  EXPECT_EQ(refusal_of([](FarHeader& h) { h.piece_bytes = 0; }),
            kIt + " has piece_bytes = 0, for 12544 bytes");
  EXPECT_THROW((void)read_far_header(std::vector<std::byte>(7), kName), Error);
}

/// What check_far_places says of two ranks' counts and their three places.
std::string refusal_of_places(std::int64_t first, std::int64_t second, std::int32_t last_place) {
  FarHeader header = header_of(2);
  const FarLayout layout = far_layout(header);
  std::vector<std::byte> message(static_cast<std::size_t>(layout.end));
  const std::int64_t counts[] = {first, second};
  const std::int32_t places[] = {0, 1, last_place};
  std::memcpy(message.data() + layout.counts, counts, sizeof counts);
  std::memcpy(message.data() + layout.places, places, sizeof places);
  try {
    check_far_places(header, message.data(), kName);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FarMessage, impossible_counts_and_places_are_refused) {
  EXPECT_EQ(refusal_of_places(1, 2, 1), "");
  EXPECT_EQ(refusal_of_places(-1, 4, 1), kIt + " has -1 rows for rank 0 of the node, 3 for all");
  EXPECT_EQ(refusal_of_places(2, 2, 1), kIt + " has 2 rows for rank 1 of the node, 3 for all");
  EXPECT_EQ(refusal_of_places(1, 1, 1), kIt + " has 3 rows for all ranks, they have 2");
  EXPECT_EQ(refusal_of_places(1, 2, 2), kIt + " has row 2 of 2");
  EXPECT_EQ(refusal_of_places(1, 2, -1), kIt + " has row -1 of 2");
}

TEST(FarMessage, places_are_left_out_for_an_only_rank_that_gets_all_rows_alone) {
  const auto refusal = [](std::int32_t num_ranks, std::int64_t num_rows) {
    FarHeader header;
    header.num_rows = num_rows;
    header.num_ranks = num_ranks;
    header.num_places = 3;
    std::vector<std::int64_t> message(sizeof header / sizeof(std::int64_t) + 2);
    message[sizeof header / sizeof(std::int64_t)] = 3;
    return test::error_message(
        [&] { check_far_places(header, std::as_bytes(std::span(message)).data(), kName); },
        ErrorKind::peer);
  };
  EXPECT_EQ(refusal(1, 3), "no error");
  EXPECT_EQ(refusal(2, 3), kIt + " has 3 rows in order for 3 of 2 ranks");
  EXPECT_EQ(refusal(1, 4), kIt + " has 4 rows in order for 3 of 1 ranks");
}

constexpr std::int64_t kTaggedRowBytes = 100;

/// The error of a rank that gets `num_rows` rows in messages of which `change` makes others.
std::string refusal_of_messages(std::int64_t num_rows,
                                const std::function<void(std::vector<std::byte>&)>& change) {
  std::deque<ProcessRowBuffers::Memory> memories;  // of each rank
  test::TransportPair ranks(
      {.is_far = true,
       .make_buffers = [&] { return std::make_unique<ProcessRowBuffers>(memories.emplace_back()); },
       .wrap =
           [&](std::unique_ptr<Messages> messages) {
             return test::changing_messages(std::move(messages), change);
           }});
  const std::vector<std::byte> matrix(static_cast<std::size_t>(num_rows * kTaggedRowBytes));
  std::vector<std::int32_t> rows(static_cast<std::size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  const std::array<std::int64_t, 2> to_one = {0, num_rows};
  return test::error_message(
      [&] {
        ranks.run({.base = matrix.data(),
                   .row_bytes = kTaggedRowBytes,
                   .stride_bytes = kTaggedRowBytes,
                   .rows = rows,
                   .counts = to_one,
                   .tag_bytes = 8});
      },
      ErrorKind::peer);
}

/// The same of 3 rows, in one message whose header is changed.
std::string refusal_of_exchange(const std::function<void(FarHeader&)>& change) {
  return refusal_of_messages(3, [&](std::vector<std::byte>& message) {
    FarHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    if (header.num_rows > 0) change(header);  // rank 1 sends none
    std::memcpy(message.data(), &header, sizeof header);
  });
}

TEST(FarMessage, of_another_exchange_or_form_is_refused) {
  const std::string expected = "; expected 1, 1, 100, 8";
  EXPECT_EQ(refusal_of_exchange([](FarHeader&) {}), "no error");
  EXPECT_EQ(refusal_of_exchange([](FarHeader& h) { h.exchange = 15; }),
            kIt + " is of exchange 15, for 1 ranks, rows of 100 bytes with 8 of tags" + expected);
  EXPECT_EQ(refusal_of_exchange([](FarHeader& h) { h.num_ranks = 2; }),
            kIt + " is of exchange 1, for 2 ranks, rows of 100 bytes with 8 of tags" + expected);
  EXPECT_EQ(refusal_of_exchange([](FarHeader& h) { ++h.row_bytes; }),
            kIt + " is of exchange 1, for 1 ranks, rows of 101 bytes with 8 of tags" + expected);
  EXPECT_EQ(refusal_of_exchange([](FarHeader& h) { h.row_bytes -= 4, h.tag_bytes += 4; }),
            kIt + " is of exchange 1, for 1 ranks, rows of 100 bytes with 12 of tags" + expected);
  EXPECT_EQ(refusal_of_exchange([](FarHeader& h) { h.has_checksums = 1; }),
            kIt + " has checksums, unlike what is expected");
}

TEST(FarMessage, pieces_are_as_long_as_the_first_message_says) {
  constexpr std::int64_t kManyRows = 2000;  // 4 messages
  const auto shorten = [](std::vector<std::byte>& message) {
    std::uint64_t magic = 0;
    std::memcpy(&magic, message.data(), sizeof magic);
    if (magic != FarHeader::kMagic) message.pop_back();
  };
  EXPECT_EQ(refusal_of_messages(kManyRows, [](std::vector<std::byte>&) {}), "no error");
  const std::string refusal = refusal_of_messages(kManyRows, shorten);
  EXPECT_TRUE(refusal.starts_with(kIt + " has a piece of ")) << refusal;
}

}  // namespace
}  // namespace moesaic
