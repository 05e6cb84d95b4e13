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

const ReceivedRows& Operation::wait() {
  return wait_until([&] { return advance(); });
}

bool Operation::has_tags() {
  return received() != nullptr || advance() || received() != nullptr;
}

const ReceivedRows& Operation::wait_for_tags() {
  return wait_until([&] { return has_tags(); });
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
  if (state_ != State::done) return;
  let_go();
  state_ = State::free;
}

void Operation::give_up() noexcept {
  if (is_under_way()) waiter_.policy.idle->remove(*this);
  state_ = State::given_up;
}

}  // namespace moesaic
