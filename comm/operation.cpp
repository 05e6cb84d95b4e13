#include "comm/operation.h"

#include <exception>

namespace moesaic {

Operation::~Operation() {
  if (is_under_way()) waiter_.policy.idle->remove(*this);
}

void Operation::start(std::uint64_t number) {
  number_ = number;
  exceptions_ = std::uncaught_exceptions();
  state_ = State::under_way;
  waiter_.policy.idle->add(*this);
}

bool Operation::advance() {
  if (state_ != State::under_way) return state_ != State::given_up;
  if (!progress()) return false;
  state_ = State::done;
  waiter_.policy.idle->remove(*this);
  return true;
}

std::span<const std::byte> Operation::wait() {
  try {
    wait_or_fail(
        waiter_.policy, [&] { return advance(); },
        [&] {
          return fmt::format("rank {} of {}: {}: waiting for {}", waiter_.rank, waiter_.size, call_,
                             missing());
        });
  } catch (...) {
    give_up();
    throw;
  }
  return received();
}

void Operation::release() noexcept {
  if (is_under_way() && std::uncaught_exceptions() == exceptions_) {
    try {
      (void)wait();
    } catch (...) {
      waiter_.policy.idle->keep(std::current_exception());
    }
  }
  if (is_under_way()) give_up();
  if (state_ == State::done) state_ = State::free;
}

void Operation::give_up() noexcept {
  if (is_under_way()) waiter_.policy.idle->remove(*this);
  state_ = State::given_up;
}

}  // namespace moesaic
