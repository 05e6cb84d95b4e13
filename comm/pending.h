#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace moesaic {

/// Something that a rank looks after whenever it waits.
class UnderWay {
 public:
  /// Does what can be done now and never blocks; returns whether all is done. Throws Error{peer} if
  /// a peer disagrees about what is moved.
  virtual bool advance() = 0;

 protected:
  ~UnderWay() = default;
};

/// The rows that an exchange brings, in peer order; valid as long as its handle.
struct ReceivedRows {
  std::span<const std::int64_t> counts;      // [ranks] from each peer; own rank 0
  std::span<const std::byte* const> rows;    // [received] what each holds before its tag
  std::span<const std::byte* const> tags{};  // [received] their tags; none if these have no bytes
};

/// An exchange of rows under way, in storage of its communicator.
class RowsUnderWay : public UnderWay {
 public:
  // See PendingRows.
  virtual const ReceivedRows& wait() = 0;
  virtual bool has_tags() = 0;
  virtual const ReceivedRows& wait_for_tags() = 0;
  [[nodiscard]] virtual std::int64_t num_here(int peer) const = 0;
  virtual void wait_for_more() = 0;
  virtual void mark_ready(std::int64_t first, std::int64_t count) = 0;
  /// Waits, and gives the storage back.
  virtual void release() noexcept = 0;

 protected:
  ~RowsUnderWay() = default;
};

/// A handle on rows under way (Communicator::exchange_rows). Move-only; must not outlive its
/// communicator. The destructor waits, but not on the way out of an error: then what is under way
/// is given up. If its wait fails, the next call of a communicator of this rank throws that error.
class PendingRows {
 public:
  PendingRows() = default;
  explicit PendingRows(RowsUnderWay& rows) noexcept : rows_(&rows) {}
  PendingRows(PendingRows&& other) noexcept : rows_(std::exchange(other.rows_, nullptr)) {}
  PendingRows& operator=(PendingRows&& other) noexcept {
    std::swap(rows_, other.rows_);
    other.reset();
    return *this;
  }
  ~PendingRows() { reset(); }

  /// Whether there is anything to wait for.
  explicit operator bool() const noexcept { return rows_ != nullptr; }
  /// As the destructor.
  void reset() noexcept {
    if (rows_ != nullptr) std::exchange(rows_, nullptr)->release();
  }
  /// Whether all is done; does what can be done now and never blocks.
  [[nodiscard]] bool is_done() { return rows_ == nullptr || rows_->advance(); }

  /// Returns when all rows have come and left. Throws Error{peer} naming the rank and what it waits
  /// for at the deadline.
  const ReceivedRows& wait() { return rows_->wait(); }
  /// Whether it is known which rows come, and their tags are here; never blocks.
  [[nodiscard]] bool has_tags() { return rows_ == nullptr || rows_->has_tags(); }
  /// Returns when that is so. Throws as wait().
  const ReceivedRows& wait_for_tags() { return rows_->wait_for_tags(); }
  /// After wait_for_tags(): how many of the first rows of `peer` have come, when last looked at.
  [[nodiscard]] std::int64_t num_here(int peer) const { return rows_->num_here(peer); }
  /// After wait_for_tags(): returns when more rows are here than now, or all is done. Throws as
  /// wait().
  void wait_for_more() { rows_->wait_for_more(); }
  /// Rows [first, first + count) of the matrix to send, which RowSend promised for later, are
  /// written now. Each row once, in any order.
  void mark_ready(std::int64_t first, std::int64_t count) { rows_->mark_ready(first, count); }

 private:
  RowsUnderWay* rows_ = nullptr;
};

}  // namespace moesaic
