#include "comm/traced_communicator.h"

#include <chrono>
#include <utility>

namespace moesaic {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, kNumCommCalls> kNames = {
    "split",      "barrier",         "broadcast",     "sum",       "max",
    "all_gather", "exchange_counts", "exchange_rows", "wait_rows", "allocate_shared"};

/// Enters one call, from its construction to its end.
class Timer {
 public:
  Timer(CommTrace::Entry& entry, std::size_t bytes) : entry_(entry) {
    ++entry_.calls;
    entry_.bytes += static_cast<std::int64_t>(bytes);
  }
  ~Timer() { entry_.seconds += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  CommTrace::Entry& entry_;
  Clock::time_point begin_ = Clock::now();
};

class TracedRows final : public PendingRows {
 public:
  TracedRows(std::unique_ptr<PendingRows> base, CommTrace::Entry& entry)
      : base_(std::move(base)), entry_(entry) {}
  TracedRows(const TracedRows&) = delete;
  TracedRows& operator=(const TracedRows&) = delete;
  ~TracedRows() override {
    if (base_ == nullptr) return;
    const Timer timer(entry_, 0);
    base_.reset();  // may wait
  }

  std::span<const std::byte> wait() override {
    if (base_ != nullptr) {
      const Timer timer(entry_, 0);
      rows_ = base_->wait();
      entry_.bytes += static_cast<std::int64_t>(rows_.size());
      base_.reset();
    }
    return rows_;
  }

 private:
  std::unique_ptr<PendingRows> base_;  // null once waited for
  CommTrace::Entry& entry_;
  std::span<const std::byte> rows_;
};

class TracedCommunicator final : public Communicator {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> base, CommTrace& trace)
      : base_(std::move(base)), trace_(trace) {}

  [[nodiscard]] int rank() const noexcept override { return base_->rank(); }
  [[nodiscard]] int size() const noexcept override { return base_->size(); }
  [[nodiscard]] std::string transport() const override { return base_->transport(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const Timer timer(trace_[CommCall::split], 0);
    return std::make_unique<TracedCommunicator>(base_->split(color, key), trace_);
  }
  std::unique_ptr<Communicator> split_node() override {
    const Timer timer(trace_[CommCall::split], 0);
    return std::make_unique<TracedCommunicator>(base_->split_node(), trace_);
  }
  void barrier() override {
    const Timer timer(trace_[CommCall::barrier], 0);
    base_->barrier();
  }
  void broadcast(std::span<std::byte> data, int root) override {
    const Timer timer(trace_[CommCall::broadcast], rank() == root ? data.size() : 0);
    base_->broadcast(data, root);
  }
  void sum(std::span<float> values) override {
    const Timer timer(trace_[CommCall::sum], values.size_bytes());
    base_->sum(values);
  }
  void sum(std::span<std::int64_t> values) override {
    const Timer timer(trace_[CommCall::sum], values.size_bytes());
    base_->sum(values);
  }
  void max(std::span<std::int64_t> values) override {
    const Timer timer(trace_[CommCall::max], values.size_bytes());
    base_->max(values);
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    const Timer timer(trace_[CommCall::all_gather], send.size());
    base_->all_gather(send, recv);
  }
  void exchange_counts(std::span<const std::int64_t> send, std::span<std::int64_t> recv) override {
    const Timer timer(trace_[CommCall::exchange_counts], send.size_bytes());
    base_->exchange_counts(send, recv);
  }
  [[nodiscard]] std::unique_ptr<PendingRows> exchange_rows(
      const RowSend& send, std::span<const std::int64_t> recv_counts) override {
    const Timer timer(trace_[CommCall::exchange_rows],
                      send.rows.size() * static_cast<std::size_t>(send.row_bytes));
    return std::make_unique<TracedRows>(base_->exchange_rows(send, recv_counts),
                                        trace_[CommCall::wait_rows]);
  }
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    const Timer timer(trace_[CommCall::allocate_shared], static_cast<std::size_t>(bytes));
    return base_->allocate_shared(bytes);
  }

 private:
  std::unique_ptr<Communicator> base_;
  CommTrace& trace_;
};

}  // namespace

std::string_view comm_call_name(CommCall call) noexcept {
  return kNames[static_cast<std::size_t>(call)];
}

CommTrace::Entry CommTrace::total() const noexcept {
  Entry sum;
  for (const Entry& entry : entries) {
    sum.calls += entry.calls;
    sum.bytes += entry.bytes;
    sum.seconds += entry.seconds;
  }
  return sum;
}

std::unique_ptr<Communicator> make_traced_communicator(std::unique_ptr<Communicator> base,
                                                       CommTrace& trace) {
  return std::make_unique<TracedCommunicator>(std::move(base), trace);
}

}  // namespace moesaic
