#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/operation.h"
#include "comm/row_pool.h"
#include "comm/row_send.h"

namespace moesaic {

/// The rows of one peer, as the part of an exchange that has them finds them.
struct PeerRows {
  std::int64_t count = -1;  // not known yet
  std::int64_t here = 0;    // so many of the first have come
  const std::byte* rows = nullptr;
  std::int64_t row_stride = 0;
  const std::byte* tags = nullptr;
  std::int64_t tag_stride = 0;
  std::uint64_t checksum = 0;            // of a checked exchange: of the rows as they were sent
  const std::int32_t* places = nullptr;  // [count] where among `rows` and `tags`; null: in order

  [[nodiscard]] std::int64_t place(std::int64_t row) const {
    return places == nullptr ? row : places[row];
  }
};

/// What one exchange of rows is about; the same for all its parts.
struct RowJob {
  std::uint64_t number = 0;  // among the exchanges of the group, from 1
  RowSend send;
  std::span<const std::int64_t> expected;            // [ranks] or empty
  std::vector<std::span<const std::int32_t>> parts;  // [ranks] the rows to send to each
  std::int64_t ready_rows = 0;                       // of those that are written later
  std::vector<PeerRows> from;                        // [ranks] filled in by the parts
  RowCounters* counters = nullptr;                   // of the transport
  bool is_checked = false;                           // rows travel with checksums

  [[nodiscard]] bool all_ready() const noexcept { return ready_rows == send.later_rows; }
};

/// The part of an exchange that goes one way, such as over MPI. Used again when it is free.
class RowPart {
 public:
  virtual ~RowPart() = default;
  /// `job` stays until all is done.
  virtual void start(RowJob& job) = 0;
  /// Rows [first, first + count) of the matrix are written now.
  virtual void mark_ready(std::int64_t /*first*/, std::int64_t /*count*/) {}
  /// Does what can be done now; returns whether all rows have been sent and received. Throws
  /// Error{peer} if a peer disagrees about the rows.
  virtual bool progress() = 0;
  /// What is missing.
  [[nodiscard]] virtual Awaited missing() const = 0;
  /// This rank does not need the received rows any more.
  virtual void let_go() noexcept {}
  /// Whether all ranks of the node have found what this rank has posted for them: they can read it
  /// even when this rank is gone.
  [[nodiscard]] virtual bool is_found() const = 0;
  /// Whether none of them reads it any more.
  [[nodiscard]] virtual bool is_free() const = 0;
};

/// Makes the part of an exchange that has the rows for some ranks of the group.
using RowPartMaker = std::function<std::unique_ptr<RowPart>()>;

/// Exchanges of rows between the ranks of a group, of one or more parts that share the ranks out.
class RowTransport {
 public:
  struct Ways {
    std::unique_ptr<RowPool> pool;
    std::vector<RowPartMaker> parts;  // of an exchange, started in this order
    bool have_messages = false;       // one of them sends some
    std::int64_t check_rows = 0;      // as in CommOptions
  };

  RowTransport(const Waiter& waiter, Ways ways);
  ~RowTransport();

  /// As Communicator::exchange_rows.
  [[nodiscard]] PendingRows start(const RowSend& send, std::span<const std::int64_t> expected);
  /// As Communicator::make_row_memory.
  [[nodiscard]] std::unique_ptr<RowMemory> make_memory() { return ways_.pool->make_memory(); }
  [[nodiscard]] const RowCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] bool has_messages() const noexcept { return ways_.have_messages; }

 private:
  class Exchange;

  Waiter waiter_;
  Ways ways_;
  RowCounters counters_;
  OperationRing<Exchange> exchanges_;
};

}  // namespace moesaic
