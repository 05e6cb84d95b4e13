#pragma once

#include <memory>
#include <string>

#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/idle_time.h"
#include "comm/row_transport.h"

namespace moesaic {

/// Who the ranks of a group are, and how other groups are made of them.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual std::string transport() const = 0;

  // As the calls of Communicator; `self` is that of this group.
  virtual std::unique_ptr<Communicator> split(Communicator& self, int color, int key) = 0;
  virtual std::unique_ptr<Communicator> split_node(Communicator& self) = 0;
  virtual std::shared_ptr<SharedMemory> allocate_shared(Communicator& self, std::int64_t bytes) = 0;
};

/// The Communicator of every transport, put together of its parts.
class TransportCommunicator final : public Communicator {
 public:
  struct Parts {
    std::unique_ptr<RankGroup> group;  // outlives the others
    std::unique_ptr<Collectives> collectives;
    std::unique_ptr<RowTransport> rows;
    std::shared_ptr<IdleTime> idle;  // of this rank, in all its groups
  };

  explicit TransportCommunicator(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] int rank() const noexcept override { return parts_.group->rank(); }
  [[nodiscard]] int size() const noexcept override { return parts_.group->size(); }
  [[nodiscard]] std::string transport() const override { return parts_.group->transport(); }
  [[nodiscard]] bool has_messages() const override { return parts_.rows->has_messages(); }

  std::unique_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Communicator> split_node() override;
  void barrier() override { collectives().barrier(); }
  void broadcast(std::span<std::byte> data, int root) override {
    collectives().broadcast(data, root);
  }
  void sum(std::span<std::int64_t> values) override { collectives().sum(values); }
  void max(std::span<std::int64_t> values) override { collectives().max(values); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv) override {
    collectives().all_gather(send, recv);
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override;
  [[nodiscard]] std::unique_ptr<RowMemory> make_row_memory() override {
    return parts_.rows->make_memory();
  }
  [[nodiscard]] RowCounters row_counters() const override { return parts_.rows->counters(); }
  void progress() override;
  [[nodiscard]] RowLabel& place() noexcept override { return parts_.idle->place(); }
  std::shared_ptr<SharedMemory> allocate_shared(std::int64_t bytes) override;

 private:
  /// Every call passes here: what could not be thrown before is thrown now.
  Collectives& collectives() {
    parts_.idle->throw_kept();
    return *parts_.collectives;
  }

  Parts parts_;
};

}  // namespace moesaic
