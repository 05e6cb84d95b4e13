#pragma once

#include "comm/memory_board.h"
#include "comm/row_pool.h"
#include "comm/row_transport.h"

namespace moesaic {

/// Rows for the ranks of a board, which read them where they lie: in the matrix, if that is memory
/// of the pool, else in a copy of the rows for all of them. A rank that knows what to expect never
/// waits for a peer that it receives nothing from.
/// The board names its ranks by their numbers in the group. Both must outlive the parts.
[[nodiscard]] RowPartMaker board_rows(MemoryBoard& board, RowPool& pool);

}  // namespace moesaic
