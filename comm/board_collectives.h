#pragma once

#include "comm/collectives.h"
#include "comm/memory_board.h"

namespace moesaic {

/// Collective calls by mail over a MemoryBoard.
class BoardCollectives final : public Collectives {
 public:
  /// `board` must outlive this object.
  explicit BoardCollectives(MemoryBoard& board) : board_(board) {}

  void barrier() override;
  void broadcast(std::span<std::byte> data, int root) override;
  void sum(std::span<std::int64_t> values) override;
  void max(std::span<std::int64_t> values) override;
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override;

 private:
  void sum_in_slices(std::span<std::int64_t> values);

  MemoryBoard& board_;
};

}  // namespace moesaic
