#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/memory_board.h"
#include "comm/row_buffers.h"

namespace moesaic {

/// Receive memory for messages whose sizes become known one by one. What is allocated stays where
/// it is until all is given back.
class RowArena {
 public:
  /// `buffers` must outlive this.
  explicit RowArena(RowBuffers& buffers) : buffers_(buffers) {}

  struct Piece {
    std::byte* data = nullptr;  // aligned to 64
    BoardPlace place;
  };
  /// Throws Error{resource} if there is no memory.
  [[nodiscard]] Piece allocate(std::int64_t bytes);
  /// Nothing of it is in use any more.
  void clear() noexcept {
    for (Block& block : blocks_) block.used = 0;
  }

 private:
  struct Block {
    std::size_t slot;
    std::byte* data;
    std::int64_t size;
    std::int64_t used;
  };

  RowBuffers& buffers_;
  std::vector<Block> blocks_;
};

}  // namespace moesaic
