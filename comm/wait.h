#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/pause.h"
#include "comm/idle_time.h"

namespace moesaic {

/// How a rank waits for others: it looks some times in a row, then gives the core away between
/// looks, and gives up at a deadline.
struct WaitPolicy {
  std::chrono::milliseconds timeout{};
  int spin_looks = 0;                             ///< 0 where ranks outnumber the cores
  IdleTime* idle = nullptr;                       ///< what the rank does meanwhile
  const std::atomic<int>* failed_rank = nullptr;  ///< if given: >= 0 once a rank has failed
};

/// Processors as the system numbers them, a bit each.
using Processors = std::array<std::uint64_t, 64>;
/// Those that the calling thread may use: its binding and cpuset.
[[nodiscard]] Processors usable_processors();

/// The policy of one of `num_ranks` ranks that share `processors`; `idle` must outlive all waits.
[[nodiscard]] WaitPolicy wait_policy(std::chrono::milliseconds timeout, int num_ranks,
                                     const Processors& processors, IdleTime& idle);

/// Looks until `ready()` holds, at most for `patience`; returns whether it does. Stops early when a
/// rank has failed.
template <typename Ready>
[[nodiscard]] bool wait_for(const WaitPolicy& policy, std::chrono::microseconds patience,
                            Ready&& ready) {
  for (int look = 0; look < policy.spin_looks; ++look) {
    if (ready()) return true;
    pause_core();
  }
  const auto begin = std::chrono::steady_clock::now();
  while (!ready()) {
    if (policy.failed_rank != nullptr && policy.failed_rank->load() >= 0) return false;
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > patience) return ready();
    policy.idle->pass(waited);
  }
  return true;
}

/// Looks until `ready()` holds. Throws Error{peer} with what `waiting()` says, such as "rank 1 of
/// 4: barrier: waiting for rank 3", at the deadline or when a rank has failed.
template <typename Ready, typename Waiting>
void wait_or_fail(const WaitPolicy& policy, Ready&& ready, Waiting&& waiting) {
  if (wait_for(policy, policy.timeout, ready)) return;
  const int failed = policy.failed_rank == nullptr ? -1 : policy.failed_rank->load();
  require(failed < 0, ErrorKind::peer, "{}: rank {} has failed", waiting(), failed);
  fail(ErrorKind::peer, "{}: gave up after {:.1f} s", waiting(),
       std::chrono::duration<double>(policy.timeout).count());
}

/// "3", "0 and 2", "0, 1 and 5": for messages that name ranks.
class RankList {
 public:
  void add(int rank) { ranks_.push_back(rank); }
  [[nodiscard]] bool empty() const noexcept { return ranks_.empty(); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<int> ranks_;
};

}  // namespace moesaic
