#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace moesaic {

/// Something that a communicator has under way, in storage of its own.
class UnderWay {
 public:
  /// Does what can be done now and never blocks; returns whether all is done. Throws Error{peer} if
  /// a peer disagrees about what is moved.
  virtual bool advance() = 0;
  /// Returns what has come when all is done. Throws Error{peer} naming the rank and what it waited
  /// for when the deadline passes.
  virtual std::span<const std::byte> wait() = 0;
  /// Waits, and gives the storage back.
  virtual void release() noexcept = 0;
  /// Does not wait any more; the storage is lost, since others may still write there.
  virtual void give_up() noexcept = 0;
  /// What is missing, for messages: "rank 2 to make room and the rows of rank 0".
  [[nodiscard]] virtual std::string missing() const = 0;

 protected:
  ~UnderWay() = default;
};

/// A handle on it. Move-only; must not outlive its communicator. The destructor waits, but not on
/// the way out of an error: then what is under way is given up. If its wait fails, the next call of
/// a communicator of this rank throws that error.
class Pending {
 public:
  Pending() = default;
  explicit Pending(UnderWay& operation) noexcept : operation_(&operation) {}
  Pending(Pending&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    std::swap(operation_, other.operation_);
    other.reset();
    return *this;
  }
  ~Pending() { reset(); }

  /// Whether there is anything to wait for.
  explicit operator bool() const noexcept { return operation_ != nullptr; }
  /// As the destructor.
  void reset() noexcept {
    if (operation_ != nullptr) std::exchange(operation_, nullptr)->release();
  }
  void give_up() noexcept {
    if (operation_ != nullptr) std::exchange(operation_, nullptr)->give_up();
  }
  /// Whether all is done; does what can be done now and never blocks.
  [[nodiscard]] bool is_done() { return operation_ == nullptr || operation_->advance(); }
  [[nodiscard]] std::string missing() const { return operation_->missing(); }

 protected:
  std::span<const std::byte> wait_for_operation() { return operation_->wait(); }

 private:
  UnderWay* operation_ = nullptr;
};

/// Counts under way (Communicator::start_counts).
class PendingCounts : public Pending {
 public:
  using Pending::Pending;
  /// The counts of all ranks are in `recv` when this returns. Throws Error{peer} at the deadline.
  void wait() { (void)wait_for_operation(); }
};

/// Rows under way (Communicator::exchange_rows).
class PendingRows : public Pending {
 public:
  using Pending::Pending;
  /// The received rows, in peer order, without gaps, 64-byte aligned at the start; valid as long as
  /// this handle. Throws Error{peer} at the deadline.
  std::span<const std::byte> wait() { return wait_for_operation(); }
};

}  // namespace moesaic
