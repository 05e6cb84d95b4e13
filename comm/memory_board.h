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
/// Counts number n (from 1): each rank posts those for all. They use twice as many places: a rank
/// posts n + kPlaces after it has read all of n, so whoever sees all of n + kPlaces knows that
/// all of n have been read.
class MemoryBoard {
 public:
  static constexpr std::size_t kMailBytes = 32 * 1024;
  static constexpr std::size_t kPlaces = OperationRing<Operation>::kPlaces;

  /// Bytes of the memory of a board for `size` ranks.
  [[nodiscard]] static std::size_t bytes_needed(int size);
  /// `memory` has bytes_needed(size) bytes, zero before the first rank uses it, and is aligned to
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
  void post_counts(std::uint64_t number, std::span<const std::int64_t> counts) noexcept;
  [[nodiscard]] bool has_posted_counts(int peer, std::uint64_t number) const noexcept;
  /// What `peer` has for this rank, once has_posted_counts.
  [[nodiscard]] std::int64_t count_from(int peer, std::uint64_t number) const noexcept;

  /// Offers the buffer `name` for exchange `exchange`, with a placement for every rank's rows.
  void offer_rows(std::uint64_t exchange, const RowBufferName& name,
                  std::span<const RowPlacement> placements) noexcept;
  [[nodiscard]] bool has_offered(int peer, std::uint64_t exchange) const noexcept;
  /// What `peer` offered, once has_offered.
  [[nodiscard]] RowBufferName offered_buffer(int peer, std::uint64_t exchange) const noexcept;
  [[nodiscard]] RowPlacement offered_placement(int peer, std::uint64_t exchange) const noexcept;
  /// This rank's rows of `exchange` are at `peer`.
  void mark_sent(int peer, std::uint64_t exchange) noexcept;
  [[nodiscard]] bool has_sent(int peer, std::uint64_t exchange) const noexcept;

 private:
  struct Offer;
  [[nodiscard]] std::byte* area(int rank) const noexcept;
  [[nodiscard]] std::uint64_t& posted(int rank) const noexcept;
  [[nodiscard]] std::byte* box(int rank, std::uint64_t post) const noexcept;
  [[nodiscard]] std::uint64_t* counts(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] Offer* offer(int rank, std::uint64_t exchange) const noexcept;
  [[nodiscard]] RowPlacement* placements(int rank, std::uint64_t exchange) const noexcept;
  [[nodiscard]] std::uint64_t& sent(int from, int to, std::uint64_t exchange) const noexcept;

  std::shared_ptr<std::byte> memory_;
  BoardSeat seat_;
  WaitPolicy policy_;
  std::uint64_t posts_ = 0;  // how often this rank has posted
};

}  // namespace moesaic
