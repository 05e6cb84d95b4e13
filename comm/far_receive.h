#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/far_message.h"
#include "comm/memory_board.h"
#include "comm/messages.h"
#include "comm/row_arena.h"
#include "comm/row_transport.h"

namespace moesaic {

/// The message of one rank elsewhere to this node, which this rank receives for all ranks here.
/// What has come is told on the board.
class FarInbox {
 public:
  /// `source`: its rank in the group.
  FarInbox(int source, MemoryBoard& board) : source_(source), board_(board) {}

  void start(const RowJob& job, RowArena& arena, Messages& messages);
  /// Does what can be done now; returns whether all has come. Throws Error{peer} if it is not what
  /// belongs here.
  bool progress(RowArena& arena, Messages& messages);
  /// Whether all ranks here know where it is, if any is to know.
  [[nodiscard]] bool is_found() const;
  /// Whether all ranks here are done with it.
  [[nodiscard]] bool is_free() const;

 private:
  [[nodiscard]] bool have_all_reached(std::uint64_t value) const;
  void read_head(RowArena& arena, Messages& messages);
  [[nodiscard]] RowArena::Piece allocate(RowArena& arena, std::int64_t bytes) const;

  int source_;
  MemoryBoard& board_;
  const RowJob* job_ = nullptr;
  RowArena::Piece memory_;  // the message and, before it, who is done with it
  FarLayout layout_;
  std::size_t first_number_ = 0;  // that of the first message, later of the second
  std::int64_t next_ = 0;         // all messages below have come
};

/// The rows of one rank elsewhere for this rank, in a message that a rank of this node receives.
class FarReader {
 public:
  /// `agent`: the rank on the board that receives it.
  FarReader(int source, int agent, MemoryBoard& board, RowBuffers& buffers)
      : source_(source), agent_(agent), board_(board), buffers_(buffers) {}

  [[nodiscard]] int source() const noexcept { return source_; }
  [[nodiscard]] int agent() const noexcept { return agent_; }
  [[nodiscard]] bool has_all() const {
    const bool has_checksum = !job_->is_checked || has_checksum_;
    return rows().count >= 0 && rows().here == rows().count && has_checksum;
  }
  void start(RowJob& job);
  /// Looks what has come; returns whether all rows for this rank have. Throws Error{peer} if they
  /// are not what is expected.
  bool progress();
  /// This rank does not need them any more.
  void let_go() noexcept;

 private:
  [[nodiscard]] PeerRows& rows() const { return job_->from[static_cast<std::size_t>(source_)]; }
  [[nodiscard]] bool is_announced();
  void read_places();
  void read_checksum();

  int source_;
  int agent_;
  MemoryBoard& board_;
  RowBuffers& buffers_;
  RowJob* job_ = nullptr;
  std::byte* memory_ = nullptr;  // as in FarInbox, once it is announced
  FarHeader header_;
  FarLayout layout_;
  bool has_checksum_ = false;
};

}  // namespace moesaic
