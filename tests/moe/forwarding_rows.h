#pragma once

#include <cstdint>
#include <utility>

#include "comm/pending.h"

namespace moesaic::test {

/// Passes every call on to an exchange under way: what does more in some calls overrides these.
class ForwardingRows : public RowsUnderWay {
 public:
  explicit ForwardingRows(PendingRows rows) : rows_(std::move(rows)) {}
  virtual ~ForwardingRows() = default;
  ForwardingRows(const ForwardingRows&) = delete;
  ForwardingRows& operator=(const ForwardingRows&) = delete;

  bool advance() override { return rows_.is_done(); }
  const ReceivedRows& wait() override { return rows_.wait(); }
  bool has_tags() override { return rows_.has_tags(); }
  const ReceivedRows& wait_for_tags() override { return rows_.wait_for_tags(); }
  [[nodiscard]] std::int64_t num_here(int peer) const override { return rows_.num_here(peer); }
  void wait_for_more() override { rows_.wait_for_more(); }
  void mark_ready(std::int64_t first, std::int64_t count) override {
    rows_.mark_ready(first, count);
  }
  void release() noexcept override { rows_.reset(); }

 protected:
  [[nodiscard]] PendingRows& rows() noexcept { return rows_; }

 private:
  PendingRows rows_;
};

}  // namespace moesaic::test
