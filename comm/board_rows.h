#pragma once

#include <memory>

#include "comm/memory_board.h"
#include "comm/row_buffers.h"
#include "comm/row_transport.h"

namespace moesaic {

/// Rows for the ranks of a board: each sender copies its rows once, from its matrix to where the
/// receiver reads them. Receivers that do not know what to expect read all counts first; else a
/// rank never waits for a peer that it neither sends to nor receives from.
class BoardRows final : public RowCarrier {
 public:
  /// The board names its ranks by their numbers in the group. Both must outlive this.
  BoardRows(MemoryBoard& board, RowBuffers& buffers) : board_(board), buffers_(buffers) {}
  [[nodiscard]] std::unique_ptr<RowPart> make_part() override;

 private:
  MemoryBoard& board_;
  RowBuffers& buffers_;
};

}  // namespace moesaic
