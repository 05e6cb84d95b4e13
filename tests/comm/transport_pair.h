#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "comm/memory_board.h"
#include "comm/messages.h"
#include "comm/node_map.h"
#include "comm/row_transport.h"
#include "comm/thread_messages.h"

namespace moesaic::test {

/// Messages that do what others do, but for what a test overrides.
class ForwardingMessages : public Messages {
 public:
  explicit ForwardingMessages(std::unique_ptr<Messages> base) : base_(std::move(base)) {}
  void clear() override { base_->clear(); }
  void send(int peer, int tag, std::span<const std::byte> data) override {
    base_->send(peer, tag, data);
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
};

/// Two ranks of one thread, on a node together or each on its own, of which rank 0 sends to rank 1.
class TransportPair {
 public:
  struct Parts {
    bool is_far = false;
    std::int64_t check_rows = 0;  // as in CommOptions
    std::function<std::unique_ptr<RowBuffers>()> make_buffers{};
    /// What messages between nodes are put into; none: nothing.
    std::function<std::unique_ptr<Messages>(std::unique_ptr<Messages>)> wrap{};
  };

  explicit TransportPair(Parts parts);

  /// One exchange, in which rank 1 sends nothing. `received` hears what comes to it. Throws what
  /// either rank throws.
  void run(const RowSend& send, const std::function<void(const ReceivedRows&)>& received = {});

 private:
  struct Rank {
    std::unique_ptr<MemoryBoard> board;
    std::unique_ptr<RowTransport> rows;
  };

  [[nodiscard]] std::array<Rank, 2> make_ranks();
  [[nodiscard]] RowTransport::Ways make_ways(int rank, MemoryBoard& board);
  [[nodiscard]] MessageMaker make_messages(int rank);

  Parts parts_;
  NodeMap nodes_{std::array{0, 1}};
  ThreadPost post_;
  std::array<ByteBuffer, 2> boards_;
  std::array<IdleTime, 2> idles_;
  std::array<Rank, 2> ranks_;
};

/// `base`, but for what `change` makes of each message that is sent.
[[nodiscard]] std::unique_ptr<Messages> changing_messages(
    std::unique_ptr<Messages> base, std::function<void(std::vector<std::byte>&)> change);

}  // namespace moesaic::test
