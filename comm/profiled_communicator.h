#pragma once

#include "comm/forwarding_communicator.h"

namespace moesaic {

/// `base`, and before each exchange of rows a barrier: what a rank waits there, it waits for slower
/// ranks, and what the exchange takes afterwards is moving rows. For measurements: ranks that wait
/// for each other hide nothing behind computing.
class ProfiledCommunicator final : public ForwardingCommunicator {
 public:
  /// `base` must outlive this.
  explicit ProfiledCommunicator(Communicator& base) : ForwardingCommunicator(base) {}

  /// Seconds that this rank has waited in those barriers.
  [[nodiscard]] double late_seconds() const noexcept { return late_seconds_; }

  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override;

 private:
  double late_seconds_ = 0;
};

}  // namespace moesaic
