#pragma once

#include "comm/memory_board.h"
#include "comm/messages.h"
#include "comm/node_map.h"
#include "comm/row_buffers.h"
#include "comm/row_transport.h"

namespace moesaic {

/// The way to other nodes, which outlives what goes there. `board` and `buffers` are those of the
/// ranks of this node.
struct FarWay {
  const NodeMap& nodes;
  MemoryBoard& board;
  RowBuffers& buffers;
  MessageMaker make_messages;
};

/// Rows for the ranks of other nodes: one message a node and what it announces, each row once, to a
/// rank that receives it for all ranks of its node, into memory that these all read.
[[nodiscard]] RowPartMaker far_rows(FarWay way);

}  // namespace moesaic
