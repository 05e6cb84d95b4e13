#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/memory_board.h"

namespace moesaic {

/// The collective calls of a Communicator, by mail over a MemoryBoard. See communicator.h for what
/// each promises.
class BoardCollectives {
 public:
  /// `board` must outlive this object.
  explicit BoardCollectives(MemoryBoard& board) : board_(board) {}

  void barrier();
  void broadcast(std::span<std::byte> data, int root);
  void sum(std::span<float> values);
  void sum(std::span<std::int64_t> values);
  void max(std::span<std::int64_t> values);
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv);
  void exchange_counts(std::span<const std::int64_t> send, std::span<std::int64_t> recv);

 private:
  void sum_in_slices(std::span<float> values);

  MemoryBoard& board_;
};

}  // namespace moesaic
