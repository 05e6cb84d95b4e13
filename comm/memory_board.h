#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/operation.h"
#include "comm/row_buffers.h"
#include "comm/row_send.h"
#include "comm/wait.h"

namespace moesaic {

/// A rank's place at a board.
struct BoardSeat {
  int rank = 0;
  int size = 1;
  std::vector<int> names;  // [size] the ranks' numbers in their group; empty: as on the board
  int group_size = 0;      // of the group; 0: all of it is at the board
};

/// Where rows lie in a receive buffer, as all ranks of its board can find them.
struct BoardPlace {
  RowBufferName buffer{};
  std::int64_t offset_bytes = 0;
};

/// A meeting place for ranks that see the same memory: threads of a process, or processes of a node
/// with a shared segment. There is no lock in it: every word has one writer, who publishes it with
/// an ascending sequence number (store release, load acquire).
///
/// Mail: all ranks post at the same time, at most kMailBytes each. Two boxes a rank are used in
/// turn: when a rank posts for the third time, all have posted twice, so the first is read.
/// Row exchange number n (from 1): receivers offer room, senders tick it off. These notes use
/// kPlaces places in turn, since a rank has received all rows of exchange n before it offers room
/// for n + kPlaces.
/// Counts and messages of exchange n use twice as many places: a rank writes those of n + kPlaces
/// after it has heard, in n, of all ranks at the board (counts) or from ranks elsewhere that have
/// heard of them (messages); so whoever sees all of n + kPlaces knows that all of n have been read.
/// Counts: each rank posts those for all. Messages: what came from ranks elsewhere to a rank at the
/// board, for all that are there.
class MemoryBoard {
 public:
  static constexpr std::size_t kMailBytes = 32 * 1024;
  static constexpr std::size_t kPlaces = OperationRing<Operation>::kPlaces;

  /// Bytes of the memory of a board for `size` ranks of a group of `group_size`.
  [[nodiscard]] static std::size_t bytes_needed(int size, int group_size);
  /// `memory` has bytes_needed() bytes, zero before the first rank uses it, and is aligned to
  /// 64; the board keeps it alive.
  MemoryBoard(std::shared_ptr<std::byte> memory, BoardSeat seat, const WaitPolicy& policy);

  [[nodiscard]] int rank() const noexcept { return seat_.rank; }
  [[nodiscard]] int size() const noexcept { return seat_.size; }
  [[nodiscard]] const WaitPolicy& policy() const noexcept { return policy_; }

  [[nodiscard]] int name_of(int rank) const {
    return seat_.names.empty() ? rank : seat_.names[static_cast<std::size_t>(rank)];
  }

  /// Posts this rank's next mail and waits until all have posted theirs; `call` stands in the
  /// message if one does not. Afterwards mail_of(peer) is valid until the next but one post.
  void post(std::span<const std::byte> mail, const char* call);
  [[nodiscard]] const std::byte* mail_of(int peer) const noexcept;

  /// `counts[p]` is for rank p.
  void post_counts(std::uint64_t exchange, const RowLabel& label,
                   std::span<const std::int64_t> counts) noexcept;
  [[nodiscard]] bool has_posted_counts(int peer, std::uint64_t exchange) const noexcept;
  /// What `peer` has for this rank, once has_posted_counts.
  [[nodiscard]] std::int64_t count_from(int peer, std::uint64_t exchange) const noexcept;
  [[nodiscard]] RowLabel counts_label(int peer, std::uint64_t exchange) const noexcept;

  /// What a receiver offers for an exchange: a buffer, and a placement in it for every rank's rows.
  struct RowOffer {
    RowBufferName buffer{};
    RowLabel label{};
    std::span<const RowPlacement> placements;
  };
  void offer_rows(std::uint64_t exchange, const RowOffer& offer) noexcept;
  [[nodiscard]] bool has_offered(int peer, std::uint64_t exchange) const noexcept;
  /// What `peer` offered this rank, once has_offered: one placement.
  [[nodiscard]] RowOffer offer_of(int peer, std::uint64_t exchange) const noexcept;
  /// This rank's rows of `exchange` are at `peer`, with their checksum if it is to have one.
  void mark_sent(int peer, std::uint64_t exchange, std::uint64_t checksum = 0) noexcept;
  [[nodiscard]] bool has_sent(int peer, std::uint64_t exchange) const noexcept;
  /// Once has_sent.
  [[nodiscard]] std::uint64_t sent_checksum(int peer, std::uint64_t exchange) const noexcept;

  /// A message of exchange `exchange` from rank `source` of the group, elsewhere, to this rank is
  /// coming in at `place`; so many of its first bytes have come.
  void announce(int source, std::uint64_t exchange, const BoardPlace& place,
                std::int64_t bytes) noexcept;
  void mark_arrived(int source, std::uint64_t exchange, std::int64_t bytes) noexcept;
  /// Whether rank `peer` has announced it.
  [[nodiscard]] bool has_announced(int peer, int source, std::uint64_t exchange) const noexcept;
  /// Once has_announced.
  [[nodiscard]] BoardPlace announced_place(int peer, int source,
                                           std::uint64_t exchange) const noexcept;
  [[nodiscard]] std::int64_t arrived_bytes(int peer, int source,
                                           std::uint64_t exchange) const noexcept;

 private:
  struct Offer;
  struct Message;
  [[nodiscard]] std::size_t area_bytes() const noexcept;
  [[nodiscard]] std::byte* area(int rank) const noexcept;
  [[nodiscard]] std::uint64_t& posted(int rank) const noexcept;
  [[nodiscard]] std::byte* box(int rank, std::uint64_t post) const noexcept;
  [[nodiscard]] std::uint64_t* counts(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] Offer* offer(int rank, std::uint64_t exchange) const noexcept;
  [[nodiscard]] RowPlacement* placements(int rank, std::uint64_t exchange) const noexcept;
  struct Sent;
  [[nodiscard]] Sent& sent(int from, int to, std::uint64_t exchange) const noexcept;
  [[nodiscard]] Message& message(int rank, int source, std::uint64_t exchange) const noexcept;

  std::shared_ptr<std::byte> memory_;
  BoardSeat seat_;
  WaitPolicy policy_;
  std::uint64_t posts_ = 0;  // how often this rank has posted
};

}  // namespace moesaic
