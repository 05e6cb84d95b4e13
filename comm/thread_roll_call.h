#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/roll_call.h"

namespace moesaic {

/// RollCall of ranks that are threads of this process.
class ThreadRollCall final : public RollCall {
 public:
  /// What the ranks of a job have told.
  struct Reports {
    explicit Reports(int num_ranks) : of_ranks(static_cast<std::size_t>(num_ranks)) {}
    std::mutex mutex;
    std::vector<RankReport> of_ranks;
  };

  ThreadRollCall(int rank, std::shared_ptr<Reports> reports)
      : RollCall(rank, std::vector<std::string>(reports->of_ranks.size())),
        reports_(std::move(reports)) {}

 private:
  void tell(const RankReport& own) override {
    const std::lock_guard lock(reports_->mutex);
    reports_->of_ranks[static_cast<std::size_t>(rank())] = own;
  }
  void listen(std::span<RankReport> reports) override {
    const std::lock_guard lock(reports_->mutex);
    for (std::size_t peer = 0; peer < reports.size(); ++peer) {
      if (static_cast<int>(peer) != rank()) reports[peer] = reports_->of_ranks[peer];
    }
  }

  std::shared_ptr<Reports> reports_;
};

}  // namespace moesaic
