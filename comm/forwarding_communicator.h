#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/row_memory.h"

namespace moesaic {

/// Passes every call on to another communicator: what does more than that in some calls overrides
/// these.
class ForwardingCommunicator : public Communicator {
 public:
  /// `base` must outlive this.
  explicit ForwardingCommunicator(Communicator& base) : base_(&base) {}

  [[nodiscard]] int rank() const noexcept override { return base_->rank(); }
  [[nodiscard]] int size() const noexcept override { return base_->size(); }
  [[nodiscard]] std::string transport() const override { return base_->transport(); }
  [[nodiscard]] bool has_messages() const override { return base_->has_messages(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return base_->split(color, key);
  }
  std::unique_ptr<Communicator> split_node() override { return base_->split_node(); }
  void barrier() override { base_->barrier(); }
  void broadcast(std::span<std::byte> data, int root) override { base_->broadcast(data, root); }
  void sum(std::span<std::int64_t> values) override { base_->sum(values); }
  void max(std::span<std::int64_t> values) override { base_->max(values); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    base_->all_gather(send, recv);
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    return base_->exchange_rows(send, expected);
  }
  [[nodiscard]] std::unique_ptr<RowMemory> make_row_memory() override {
    return base_->make_row_memory();
  }
  [[nodiscard]] RowCounters row_counters() const override { return base_->row_counters(); }
  void progress() override { base_->progress(); }
  [[nodiscard]] RowLabel& place() noexcept override { return base_->place(); }
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override {
    return base_->allocate_shared(bytes);
  }

 protected:
  [[nodiscard]] Communicator& base() const noexcept { return *base_; }

 private:
  Communicator* base_;
};

}  // namespace moesaic
