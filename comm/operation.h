#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/pending.h"
#include "comm/wait.h"

namespace moesaic {

/// The rank that waits, for messages; its policy has `idle`.
struct Waiter {
  int rank = 0;
  int size = 1;
  WaitPolicy policy;
};

/// Rows under way of every transport. When its handle is gone it is free to become the next
/// operation, so that a steady stream of them allocates nothing.
class Operation : public RowsUnderWay {
 public:
  /// `call` is for messages.
  Operation(const Waiter& waiter, const char* call) : waiter_(waiter), call_(call) {}
  virtual ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  bool advance() final;
  const ReceivedRows& wait() final;
  bool has_tags() final;
  const ReceivedRows& wait_for_tags() final;
  void release() noexcept final;

  [[nodiscard]] bool is_free() const noexcept { return state_ == State::free; }
  [[nodiscard]] bool is_under_way() const noexcept { return state_ == State::under_way; }
  /// What number it has, or had, among the operations of its group.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

 protected:
  [[nodiscard]] const Waiter& waiter() const noexcept { return waiter_; }
  /// Is under way from now on.
  void start(std::uint64_t number);
  /// Does what can be done now; returns whether all is done.
  virtual bool progress() = 0;
  /// What has come, once it is known; else null.
  [[nodiscard]] virtual const ReceivedRows* received() const = 0;
  /// What is missing.
  [[nodiscard]] virtual Awaited missing() const = 0;
  /// A wait has come to nothing.
  virtual void note_failure() noexcept {}
  /// The handle is gone.
  virtual void let_go() noexcept = 0;
  /// As wait(), for what `ready` says; only once received() is known by then.
  template <typename Ready>
  const ReceivedRows& wait_until(Ready&& ready);

 private:
  enum class State { free, under_way, done, given_up };

  void give_up() noexcept;

  Waiter waiter_;
  const char* call_;
  State state_ = State::free;
  std::uint64_t number_ = 0;
  int exceptions_ = 0;  // under way in this thread when it was started
};

template <typename Ready>
const ReceivedRows& Operation::wait_until(Ready&& ready) {
  try {
    wait_or_fail(waiter_.policy, ready, [&] {
      Awaited all = missing();
      all.text = fmt::format("rank {} of {}: {}: waiting for {}", waiter_.rank, waiter_.size, call_,
                             all.text);
      return all;
    });
  } catch (...) {
    note_failure();
    give_up();
    throw;
  }
  return *received();
}

/// The operations of one kind that a group has under way, numbered from 1 in the order in which all
/// ranks start them. They share kPlaces places: number n gets its place when n - kPlaces is done.
template <typename T>
class OperationRing {
 public:
  static constexpr std::uint64_t kPlaces = 8;

  /// One that is free, or else what `make()` returns, for the next number. Waits for its place.
  template <typename Make>
  [[nodiscard]] T& next(Make&& make) {
    ++number_;
    T*& place = places_[number_ % kPlaces];
    if (place != nullptr && place->number() + kPlaces == number_ && place->is_under_way()) {
      (void)place->wait();
    }
    place = nullptr;
    for (const auto& operation : operations_) {
      if (operation->is_free()) place = operation.get();
      if (place != nullptr) return *place;
    }
    place = operations_.emplace_back(make()).get();
    return *place;
  }
  /// Whether `holds` of each.
  template <typename Holds>
  [[nodiscard]] bool all_of(Holds&& holds) const {
    return std::ranges::all_of(operations_, [&](const auto& each) { return holds(*each); });
  }
  /// The number that next() was called for.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

 private:
  std::uint64_t number_ = 0;
  std::array<T*, kPlaces> places_{};
  std::vector<std::unique_ptr<T>> operations_;
};

}  // namespace moesaic
