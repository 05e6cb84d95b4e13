#include "comm/pending_exchange.h"

#include <exception>
#include <utility>

namespace moesaic {

PendingExchange::PendingExchange(const Waiter& waiter, std::unique_ptr<RowExchange> exchange,
                                 std::span<const std::byte> received)
    : waiter_(waiter),
      exchange_(std::move(exchange)),
      received_(received),
      exceptions_(std::uncaught_exceptions()) {
  waiter_.policy.idle->add(*exchange_);
}

PendingExchange::~PendingExchange() {
  try {
    if (!given_up_ && std::uncaught_exceptions() == exceptions_) (void)wait();
  } catch (const std::exception&) {  // the next call on the communicator will tell
  }
  waiter_.policy.idle->remove(*exchange_);
}

std::span<const std::byte> PendingExchange::wait() {
  given_up_ = true;  // unless the wait comes to its end
  wait_or_fail(
      waiter_.policy, [&] { return exchange_->progress(); },
      [&] {
        return fmt::format("rank {} of {}: exchange_rows: waiting for {}", waiter_.rank,
                           waiter_.size, exchange_->missing());
      });
  given_up_ = false;
  return received_;
}

}  // namespace moesaic
