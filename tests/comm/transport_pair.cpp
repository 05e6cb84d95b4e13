#include "tests/comm/transport_pair.h"

#include <chrono>
#include <deque>
#include <utility>

#include "comm/board_rows.h"
#include "comm/far_rows.h"

namespace moesaic::test {
namespace {

class ChangingMessages final : public ForwardingMessages {
 public:
  ChangingMessages(std::unique_ptr<Messages> base,
                   std::function<void(std::vector<std::byte>&)> change)
      : ForwardingMessages(std::move(base)), change_(std::move(change)) {}
  void clear() override {
    ForwardingMessages::clear();
    sent_.clear();
  }
  void send(int peer, int tag, std::span<const std::byte> data) override {
    change_(sent_.emplace_back(data.begin(), data.end()));
    ForwardingMessages::send(peer, tag, sent_.back());
  }

 private:
  std::function<void(std::vector<std::byte>&)> change_;
  std::deque<std::vector<std::byte>> sent_;
};

}  // namespace

std::unique_ptr<Messages> changing_messages(std::unique_ptr<Messages> base,
                                            std::function<void(std::vector<std::byte>&)> change) {
  return std::make_unique<ChangingMessages>(std::move(base), std::move(change));
}

TransportPair::TransportPair(Parts parts) : parts_(std::move(parts)), ranks_(make_ranks()) {}

void TransportPair::run(const RowSend& send,
                        const std::function<void(const ReceivedRows&)>& received) {
  constexpr std::array<std::int64_t, 2> kNothing = {0, 0};
  RowSend silent = send;
  silent.rows = {};
  silent.counts = kNothing;
  PendingRows sender = ranks_[0].rows->start(send, {});
  PendingRows receiver = ranks_[1].rows->start(silent, {});
  for (bool done = false; !done;) {
    const bool is_sent = sender.is_done();
    done = receiver.is_done() && is_sent;
  }
  if (received) received(receiver.wait());
}

std::array<TransportPair::Rank, 2> TransportPair::make_ranks() {
  std::array<Rank, 2> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const auto number = static_cast<std::size_t>(rank);
    const WaitPolicy policy{.timeout = std::chrono::hours(1), .idle = &idles_[number]};
    ByteBuffer& memory = boards_[parts_.is_far ? number : 0];
    if (memory.size() == 0) memory = ByteBuffer(MemoryBoard::bytes_needed(2, 2));
    const BoardSeat seat = parts_.is_far ? BoardSeat{0, 1, {rank}, 2} : BoardSeat{rank, 2, {}, 2};
    ranks[number].board = std::make_unique<MemoryBoard>(
        std::shared_ptr<std::byte>(memory.data(), [](std::byte*) {}), seat, policy);
    ranks[number].rows = std::make_unique<RowTransport>(Waiter{rank, 2, policy},
                                                        make_ways(rank, *ranks[number].board));
  }
  return ranks;
}

RowTransport::Ways TransportPair::make_ways(int rank, MemoryBoard& board) {
  RowTransport::Ways ways{.pool = std::make_unique<RowPool>(parts_.make_buffers()),
                          .parts = {},
                          .have_messages = parts_.is_far,
                          .check_rows = parts_.check_rows};
  if (parts_.is_far) {
    ways.parts.push_back(far_rows({.nodes = nodes_,
                                   .board = board,
                                   .buffers = ways.pool->buffers(),
                                   .make_messages = make_messages(rank)}));
  }
  ways.parts.push_back(board_rows(board, *ways.pool));
  return ways;
}

MessageMaker TransportPair::make_messages(int rank) {
  return [this, make = thread_message_maker(post_, rank)] {
    return parts_.wrap ? parts_.wrap(make()) : make();
  };
}

}  // namespace moesaic::test
