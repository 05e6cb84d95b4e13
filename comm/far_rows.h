#pragma once

#include <memory>

#include "comm/memory_board.h"
#include "comm/messages.h"
#include "comm/node_map.h"
#include "comm/row_buffers.h"
#include "comm/row_transport.h"

namespace moesaic {

/// Rows for the ranks of other nodes: one message a node and what it announces, each row once, to a
/// rank that receives it for all ranks of its node, into memory that these all read.
class FarRows final : public RowCarrier {
 public:
  /// What it is made of; all of it outlives the carrier. `board` and `buffers` are those of the
  /// ranks of this node.
  struct Parts {
    const NodeMap& nodes;
    MemoryBoard& board;
    RowBuffers& buffers;
    MessageMaker make_messages;
  };

  explicit FarRows(Parts parts) : parts_(std::move(parts)) {}
  [[nodiscard]] std::unique_ptr<RowPart> make_part() override;

 private:
  Parts parts_;
};

}  // namespace moesaic
