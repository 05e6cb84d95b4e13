#pragma once

#include "comm/collectives.h"
#include "comm/memory_board.h"
#include "comm/operation.h"

namespace moesaic {

/// Counts by notes on a board.
class BoardCounts final : public Operation {
 public:
  BoardCounts(MemoryBoard& board, const Waiter& waiter)
      : Operation(waiter, "start_counts"), board_(board) {}
  void start(std::uint64_t number, std::span<const std::int64_t> send,
             std::span<std::int64_t> recv);
  [[nodiscard]] std::string missing() const override;

 private:
  bool progress() override;

  MemoryBoard& board_;
  std::span<std::int64_t> recv_;
  int next_peer_ = 0;  // all below have been read
};

/// Collective calls by mail over a MemoryBoard.
class BoardCollectives final : public Collectives {
 public:
  /// `board` must outlive this object.
  explicit BoardCollectives(MemoryBoard& board);

  void barrier() override;
  void broadcast(std::span<std::byte> data, int root) override;
  void sum(std::span<float> values) override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override;
  [[nodiscard]] PendingCounts start_counts(std::span<const std::int64_t> send,
                                           std::span<std::int64_t> recv) override;

 private:
  void sum_in_slices(std::span<float> values);
  [[nodiscard]] std::unique_ptr<BoardCounts> make_counts();

  MemoryBoard& board_;
  OperationRing<BoardCounts> counts_;
};

}  // namespace moesaic
