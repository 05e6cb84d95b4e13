// Messages between nodes as bytes: how they are cut, and what is refused.

#include "comm/far_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

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

}  // namespace
}  // namespace moesaic
