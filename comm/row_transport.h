#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/operation.h"
#include "comm/row_buffers.h"
#include "comm/row_send.h"

namespace moesaic {

/// What one exchange of rows is about, once all counts are known; the same for all its parts.
struct RowJob {
  std::uint64_t number = 0;  // among the exchanges of the group, from 1
  std::size_t slot = 0;      // the receive buffer
  std::byte* received = nullptr;
  RowSend send;
  std::vector<RowPlacement> placements;              // [ranks] where their rows go in `received`
  std::vector<std::span<const std::int32_t>> parts;  // [ranks] the rows to send to each
};

/// The part of an exchange that goes one way, such as over MPI. Used again when it is done.
class RowPart {
 public:
  virtual ~RowPart() = default;
  /// `job` stays until all is done.
  virtual void start(const RowJob& job) = 0;
  /// Does what can be done now; returns whether all rows have been sent and received. Throws
  /// Error{peer} if a peer disagrees about the rows.
  virtual bool progress() = 0;
  /// Whether the rows to send have left, as far as this rank has to do with it.
  [[nodiscard]] virtual bool has_sent() const = 0;
  /// What is missing: "rank 2 to make room and the rows of rank 0".
  [[nodiscard]] virtual std::string missing() const = 0;
};

/// A way for rows to some ranks of the group.
class RowCarrier {
 public:
  virtual ~RowCarrier() = default;
  [[nodiscard]] virtual std::unique_ptr<RowPart> make_part() = 0;
};

/// Exchanges of rows between the ranks of a group, by one or more carriers that share them out.
class RowTransport {
 public:
  struct Ways {
    std::unique_ptr<RowBuffers> buffers;
    std::vector<std::unique_ptr<RowCarrier>> carriers;  // started in this order
    /// How long a start waits until the rows have left. 0: not at all.
    std::chrono::microseconds patience{};
  };

  RowTransport(const Waiter& waiter, Ways ways);
  ~RowTransport();

  /// As Communicator::exchange_rows.
  [[nodiscard]] PendingRows start(const RowSend& send, std::span<const std::int64_t> recv_counts,
                                  PendingCounts counts);

 private:
  class Exchange;

  Waiter waiter_;
  Ways ways_;
  OperationRing<Exchange> exchanges_;
};

}  // namespace moesaic
