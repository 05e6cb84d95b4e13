#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/idle_time.h"
#include "comm/wait.h"

namespace moesaic {

/// PendingRows over the RowExchange of any transport.
class PendingExchange final : public PendingRows {
 public:
  /// The rank that waits; its policy has `idle`.
  struct Waiter {
    int rank = 0;
    int size = 1;
    WaitPolicy policy;
  };

  PendingExchange(const Waiter& waiter, std::unique_ptr<RowExchange> exchange,
                  std::span<const std::byte> received);
  PendingExchange(const PendingExchange&) = delete;
  PendingExchange& operator=(const PendingExchange&) = delete;
  /// Waits, but not on the way out of an error: then the exchange is given up.
  ~PendingExchange() override;

  std::span<const std::byte> wait() override;

 private:
  Waiter waiter_;
  std::unique_ptr<RowExchange> exchange_;
  std::span<const std::byte> received_;
  int exceptions_;
  bool given_up_ = false;
};

}  // namespace moesaic
