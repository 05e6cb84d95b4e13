#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/operation.h"
#include "comm/row_buffers.h"
#include "comm/row_label.h"
#include "comm/wait.h"

namespace moesaic {

/// A rank's place at a board.
struct BoardSeat {
  int rank = 0;
  int size = 1;
  std::vector<int> names;  // [size] the ranks' numbers in their group; empty: as on the board
  int group_size = 0;      // of the group; 0: all of it is at the board
};

/// A place in a row buffer, as all ranks of its board can find it.
struct BoardPlace {
  RowBufferName buffer{};
  std::int64_t offset_bytes = 0;
};

/// What a sender tells its board about its rows of an exchange, which receivers read where they
/// lie.
struct RowNotice {
  RowLabel label{};
  RowBufferName head{};           // who is done with them, and which they are; none if no rows
  BoardPlace rows{};              // the first row of their matrix
  std::int64_t stride_bytes = 0;  // from row to row
  bool has_places = false;        // else the rows for all receivers stand in order
};

/// One receiver's part of the rows that a notice is about.
struct RowShare {
  std::int64_t first = 0;  // among those for all receivers
  std::int64_t count = 0;
  std::uint64_t checksum = 0;  // if the exchange is checked
};

/// A meeting place for ranks that see the same memory: threads of a process, or processes of a node
/// with a shared segment. There is no lock in it: every word has one writer, who publishes it with
/// an ascending sequence number (store release, load acquire).
///
/// Mail: all ranks post at the same time, at most kMailBytes each. Two boxes a rank are used in
/// turn: when a rank posts for the third time, all have posted twice, so the first is read.
/// Rows of exchange n (from 1): each sender posts a notice, and each rank ticks it off when it has
/// read it, or passes over it if it expects no rows. Notices use kPlaces places in turn: that of
/// n + kPlaces may be posted when all are done with that of n.
/// Messages: what came from ranks elsewhere to a rank at the board, for all that are there. They
/// use twice as many places: a rank writes those of n + kPlaces after it has heard, in n, from
/// ranks elsewhere that have heard of all ranks here; so whoever sees all of n + kPlaces knows that
/// all of n have been read.
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

  /// `shares` [size]: of each rank at the board. The place must be clear (is_clear).
  void post_rows(std::uint64_t exchange, const RowNotice& notice,
                 std::span<const RowShare> shares) noexcept;
  /// Whether all ranks have read what stood where the notice of `exchange` goes.
  [[nodiscard]] bool is_clear(std::uint64_t exchange) const noexcept;
  /// Whether `peer` has read this rank's notice of `exchange`, or has passed over it.
  [[nodiscard]] bool has_read_rows(int peer, std::uint64_t exchange) const noexcept;
  /// Whether `peer` has passed over this rank's notice of `exchange`, or is about to.
  [[nodiscard]] bool has_passed_over(int peer, std::uint64_t exchange) const noexcept;
  [[nodiscard]] bool has_posted_rows(int peer, std::uint64_t exchange) const noexcept;
  /// Once has_posted_rows: what `peer` told all, and of this rank's part.
  [[nodiscard]] RowNotice rows_of(int peer, std::uint64_t exchange) const noexcept;
  [[nodiscard]] RowShare share_of(int peer, std::uint64_t exchange) const noexcept;
  /// This rank has read what `peer` has posted. In ascending order for each place.
  void mark_read(int peer, std::uint64_t exchange) noexcept;
  /// This rank does not wait for what `peer` posts, as it expects no rows of it; in the same order.
  /// Returns how many it has posted for this rank. If it posts at the same time, either the return
  /// value tells of them, or has_passed_over does when it has posted, or both; not if this rank has
  /// come to exchange + kPlaces meanwhile.
  [[nodiscard]] std::int64_t pass_over(int peer, std::uint64_t exchange) noexcept;

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
  struct Notice;
  struct Message;
  [[nodiscard]] std::size_t area_bytes() const noexcept;
  [[nodiscard]] std::byte* area(int rank) const noexcept;
  [[nodiscard]] std::uint64_t& posted(int rank) const noexcept;
  [[nodiscard]] std::byte* box(int rank, std::uint64_t post) const noexcept;
  [[nodiscard]] Notice& notice(int rank, std::uint64_t exchange) const noexcept;
  [[nodiscard]] RowShare* shares(int rank, std::uint64_t exchange) const noexcept;
  /// How far rank `to` has come with the notices of `from` at this place, as ticks() counts.
  [[nodiscard]] std::uint64_t& read(int from, int to, std::uint64_t exchange) const noexcept;
  [[nodiscard]] Message& message(int rank, int source, std::uint64_t exchange) const noexcept;

  std::shared_ptr<std::byte> memory_;
  BoardSeat seat_;
  WaitPolicy policy_;
  std::uint64_t posts_ = 0;  // how often this rank has posted
};

}  // namespace moesaic
