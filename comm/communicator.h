#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/pending.h"
#include "comm/row_label.h"

namespace moesaic {

/// Rows to send: `row_bytes` bytes each, row i at `base + i * stride_bytes`. `rows` lists the rows
/// for peer 0, then those for peer 1, and so on; a row may stand several times. `counts[p]` of them
/// go to peer p; the own rank's count must be 0, since own rows need no transport. All of it stays
/// untouched by the caller until the exchange has been waited for, but for rows that are written
/// later; a matrix in a RowMemory until that is renewed.
struct RowSend {
  const std::byte* base = nullptr;
  std::int64_t row_bytes = 0;  // the same on every rank
  std::int64_t stride_bytes = 0;
  std::span<const std::int32_t> rows{};
  std::span<const std::int64_t> counts{};  // [size]
  /// So many last bytes of a row travel before all rows: what a receiver plans with. The same on
  /// every rank.
  std::int64_t tag_bytes = 0;
  /// Rows [0, later_rows) of the matrix are written later, and told by PendingRows::mark_ready.
  /// They have no tags.
  std::int64_t later_rows = 0;
  RowLabel label{};  // the same on every rank
};

/// What the exchanges of a communicator have moved since it was made, as this rank sent it.
struct RowCounters {
  std::int64_t bytes_near = 0;  // of rows to ranks of its node
  std::int64_t bytes_far = 0;   // of messages to ranks of other nodes
  std::int64_t messages = 0;    // that many
  std::int64_t rows_saved = 0;  // that did not travel because their node got them already

  RowCounters& operator+=(const RowCounters& more) noexcept {
    bytes_near += more.bytes_near;
    bytes_far += more.bytes_far;
    messages += more.messages;
    rows_saved += more.rows_saved;
    return *this;
  }
  /// What has moved since it was `before`.
  [[nodiscard]] RowCounters since(const RowCounters& before) const noexcept {
    return {bytes_near - before.bytes_near, bytes_far - before.bytes_far,
            messages - before.messages, rows_saved - before.rows_saved};
  }
};

class RowMemory;  // comm/row_memory.h

/// Memory that the ranks of one node see together. Freed when the last owner lets go; the
/// destructor is not collective.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() const noexcept = 0;
};

/// How often a rank that computes is to call Communicator::progress.
inline constexpr std::chrono::microseconds kProgressEvery(150);

/// A group of ranks. Every call but those that say otherwise is collective: all ranks of the group
/// make it, in the same order, and each of them makes it even if it has nothing to send.
/// One thread a rank. Waits have a deadline (`timeout`) and throw Error{peer} that names rank, call
/// and, where it is known, the peer that is missing.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Not collective.
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// What moves the rows: "threads", "mpi", "shared memory", ...
  [[nodiscard]] virtual std::string transport() const = 0;
  /// Whether some rows travel in messages, so that it is worth their while to leave early.
  [[nodiscard]] virtual bool has_messages() const = 0;

  /// The ranks that give the same color (>= 0), ordered by key, then by rank.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// The ranks of this group that share this node's memory; this one alone where the system does
  /// not let them.
  virtual std::unique_ptr<Communicator> split_node() = 0;

  virtual void barrier() = 0;
  /// `data` of rank root reaches all; the same size everywhere.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// In place, element by element.
  virtual void sum(std::span<std::int64_t> values) = 0;
  virtual void max(std::span<std::int64_t> values) = 0;
  /// recv[p * send.size() ...] becomes what rank p holds in `send`; the same size on every rank.
  virtual void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) = 0;
  /// Moves rows. `expected` is empty, or [size] the rows that come from each peer where a rank
  /// knows them, which saves it a look at its neighbours' counts; on all ranks or on none. Any
  /// number of exchanges may be under way, each with room of its own; from the ninth on, a start
  /// waits for the oldest to arrive.
  [[nodiscard]] virtual PendingRows exchange_rows(const RowSend& send,
                                                  std::span<const std::int64_t> expected) = 0;
  /// Not collective: memory for rows to send, which ranks of this node read where they lie. Other
  /// rows are copied once.
  [[nodiscard]] virtual std::unique_ptr<RowMemory> make_row_memory() = 0;
  /// Not collective.
  [[nodiscard]] virtual RowCounters row_counters() const = 0;
  /// Not collective: lets what this rank has under way go on, in this communicator and all others
  /// of the job. Cheap, and never blocks; transfers between nodes need it while a rank computes.
  virtual void progress() = 0;
  /// Not collective: where this rank is in its work, in this communicator and all others of the
  /// job. The caller keeps it up to date; what the ranks tell of each other comes from here.
  [[nodiscard]] virtual RowLabel& place() noexcept = 0;

  /// Zero-filled memory seen by all ranks, which must share a node (see split_node); `bytes` is the
  /// same on every rank. Throws Error{resource} if it cannot be had.
  virtual std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) = 0;
};

}  // namespace moesaic
