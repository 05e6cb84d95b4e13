#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/core_yield.h"
#include "comm/exchange_trace.h"
#include "comm/pending.h"
#include "comm/roll_call.h"
#include "comm/row_label.h"

namespace moesaic {

/// What one rank has under way, in all its communicators, and what it does while it waits in
/// whatever call. It drives all that is under way: else two ranks that wait in different calls
/// could wait for each other. And it gives the core away: more ranks than cores must not be slow,
/// nor other work on the machine. The longer a wait lasts, the longer it sleeps between looks: a
/// rank without work costs no core.
class IdleTime {
 public:
  IdleTime() { under_way_.reserve(64); }

  void add(UnderWay& operation) { under_way_.push_back(&operation); }
  void remove(UnderWay& operation) noexcept { std::erase(under_way_, &operation); }

  /// Where this rank is in its work.
  [[nodiscard]] RowLabel& place() noexcept { return place_; }

  /// Does what can be done now; cheap if there is nothing.
  void work();
  /// To be called between two looks: works and gives the core away. The wait has lasted for
  /// `waited`.
  void pass(std::chrono::nanoseconds waited);

  /// How the ranks of the job find out for whom they all wait; none for a rank that is alone.
  void set_roll_call(std::unique_ptr<RollCall> roll_call) { roll_call_ = std::move(roll_call); }
  [[nodiscard]] RollCall* roll_call() const noexcept { return roll_call_.get(); }
  /// Whether a wait is to end because another rank has waited in vain.
  [[nodiscard]] bool is_called() { return roll_call_ != nullptr && roll_call_->is_called(); }
  /// What a rank that is at work does now and then: works, and tells where it is if it is asked.
  void attend() {
    work();
    if (roll_call_ != nullptr) roll_call_->answer(place_);
  }

  /// Where exchanges are noted; null: nowhere.
  void set_trace(std::unique_ptr<ExchangeTrace> trace) { trace_ = std::move(trace); }
  [[nodiscard]] ExchangeTrace* trace() const noexcept { return trace_.get(); }

  /// Keeps an error that came where none can be thrown, if it is the first.
  void keep(std::exception_ptr error) noexcept {
    if (kept_ == nullptr) kept_ = std::move(error);
  }
  /// Throws it, once.
  void throw_kept();

 private:
  RowLabel place_;
  std::unique_ptr<RollCall> roll_call_;
  std::vector<UnderWay*> under_way_;
  CoreYield core_;
  std::exception_ptr kept_;
  std::unique_ptr<ExchangeTrace> trace_;
};

}  // namespace moesaic
