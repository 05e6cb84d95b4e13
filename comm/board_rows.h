#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/idle_time.h"
#include "comm/memory_board.h"

namespace moesaic {

/// The two receive buffers of a rank, used in turn, and the way into those of its peers.
class RowBuffers {
 public:
  virtual ~RowBuffers() = default;
  /// This rank's buffer number `parity` (0 or 1), of at least `bytes`, aligned to 64. Its contents
  /// may be lost. Throws Error{resource} if it cannot grow.
  virtual std::byte* reserve(std::size_t parity, std::int64_t bytes) = 0;
  /// What peers must know to find that buffer.
  [[nodiscard]] virtual RowBufferName name(std::size_t parity) const = 0;
  /// A peer's buffer as this rank sees it.
  virtual std::byte* of_peer(int peer, std::size_t parity, const RowBufferName& name) = 0;
};

/// Rows for one rank of the board.
struct BoardRows {
  int peer = 0;  // its rank on the board
  std::span<const std::int32_t> rows;
};

/// One exchange of rows over a board: each sender copies its rows once, from its matrix to where
/// the receiver reads them. A rank never waits for a peer that it neither sends to nor receives
/// from.
class BoardExchange final : public RowExchange {
 public:
  /// Rows arrive in buffers.reserve(exchange & 1, ...) as `placements` [board ranks] say, which
  /// the caller has reserved. `buffers` must outlive this object.
  BoardExchange(MemoryBoard& board, RowBuffers& buffers, std::uint64_t exchange);
  void start(const RowSend& send, std::vector<BoardRows> rows_to_send,
             std::span<const RowPlacement> placements);

  /// Sends what peers are ready for at once or in a moment; progress() has to do the rest.
  void send_ready_soon();
  bool progress() override;
  [[nodiscard]] std::string missing() const override;

 private:
  bool send_ready();
  void send_to(const BoardRows& part);

  MemoryBoard& board_;
  RowBuffers& buffers_;
  std::uint64_t exchange_;
  RowSend send_;
  std::vector<BoardRows> unsent_;
  std::vector<int> awaited_;  // peers whose rows have not come
};

}  // namespace moesaic
