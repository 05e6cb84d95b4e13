#include "comm/board_rows.h"

#include <utility>

#include "comm/row_send.h"

namespace moesaic {
namespace {

/// A peer that is later than this is busy: better go on and send its rows later.
constexpr std::chrono::microseconds kStartPatience(100);

}  // namespace

BoardExchange::BoardExchange(MemoryBoard& board, RowBuffers& buffers, std::uint64_t exchange)
    : board_(board), buffers_(buffers), exchange_(exchange) {}

void BoardExchange::start(const RowSend& send, std::vector<BoardRows> rows_to_send,
                          std::span<const RowPlacement> placements) {
  send_ = send;
  unsent_ = std::move(rows_to_send);
  for (int peer = 0; peer < board_.size(); ++peer) {
    if (placements[static_cast<std::size_t>(peer)].bytes > 0) awaited_.push_back(peer);
  }
  board_.offer_rows(exchange_, buffers_.name(exchange_ & 1), placements);
}

void BoardExchange::send_ready_soon() {
  (void)wait_for(board_.policy(), kStartPatience, [&] { return send_ready(); });
}

bool BoardExchange::send_ready() {
  std::erase_if(unsent_, [&](const BoardRows& part) {
    if (!board_.has_offered(part.peer, exchange_)) return false;
    send_to(part);
    return true;
  });
  return unsent_.empty();
}

bool BoardExchange::progress() {
  const bool all_sent = send_ready();
  std::erase_if(awaited_, [&](int peer) { return board_.has_sent(peer, exchange_); });
  return all_sent && awaited_.empty();
}

void BoardExchange::send_to(const BoardRows& part) {
  const RowPlacement place = board_.offered_placement(part.peer, exchange_);
  const auto bytes = static_cast<std::int64_t>(part.rows.size()) * send_.row_bytes;
  require(place.bytes == bytes, ErrorKind::peer,
          "rank {}: exchange_rows: {} bytes for rank {}, which expects {}",
          board_.name_of(board_.rank()), bytes, board_.name_of(part.peer), place.bytes);
  std::byte* buffer =
      buffers_.of_peer(part.peer, exchange_ & 1, board_.offered_buffer(part.peer, exchange_));
  copy_rows(send_, part.rows, buffer + place.offset_bytes);
  board_.mark_sent(part.peer, exchange_);
}

std::string BoardExchange::missing() const {
  RankList senders;
  for (const int peer : awaited_) senders.add(board_.name_of(peer));
  RankList receivers;
  for (const BoardRows& part : unsent_) receivers.add(board_.name_of(part.peer));
  std::string text;
  if (!receivers.empty()) text = "rank " + receivers.text() + " to make room";
  if (!receivers.empty() && !senders.empty()) text += " and ";
  if (!senders.empty()) text += "the rows of rank " + senders.text();
  return text;
}

}  // namespace moesaic
