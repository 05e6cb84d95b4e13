#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/pause.h"
#include "comm/awaited.h"
#include "comm/idle_time.h"

namespace moesaic {

/// How a rank waits for others: it looks some times in a row, then gives the core away between
/// looks, and gives up at a deadline.
struct WaitPolicy {
  std::chrono::milliseconds timeout{};
  int spin_looks = 0;                             ///< 0 where ranks outnumber the cores
  IdleTime* idle = nullptr;                       ///< what the rank does meanwhile
  const std::atomic<int>* failed_rank = nullptr;  ///< if given: >= 0 once a rank has failed
  /// [ranks of the group] their numbers in the job; null: the same.
  std::shared_ptr<const std::vector<int>> job_ranks{};
  /// The same on all ranks of the group, and another one for other groups, also of the same ranks;
  /// 0: not known.
  std::uint64_t group = 0;
};

/// Processors as the system numbers them, a bit each.
using Processors = std::array<std::uint64_t, 64>;
/// Those that the calling thread may use: its binding and cpuset.
[[nodiscard]] Processors usable_processors();

/// The policy of one of `num_ranks` ranks that share `processors`; `idle` must outlive all waits.
[[nodiscard]] WaitPolicy wait_policy(std::chrono::milliseconds timeout, int num_ranks,
                                     const Processors& processors, IdleTime& idle);

/// Looks some times in a row; returns whether `ready()` holds.
template <typename Ready>
[[nodiscard]] bool look_for(const WaitPolicy& policy, Ready&& ready) {
  for (int look = 0; look < policy.spin_looks; ++look) {
    if (ready()) return true;
    pause_core();
  }
  return false;
}

/// Looks until `ready()` holds, and gives the core away between looks, at most for `patience` since
/// `begin`; returns whether it holds. Stops early when a rank has failed or waited in vain.
template <typename Ready>
[[nodiscard]] bool yield_for(const WaitPolicy& policy, std::chrono::microseconds patience,
                             std::chrono::steady_clock::time_point begin, Ready&& ready) {
  while (!ready()) {
    if (policy.failed_rank != nullptr && policy.failed_rank->load() >= 0) return false;
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > patience || policy.idle->is_called()) return ready();
    policy.idle->pass(waited);
  }
  return true;
}

/// Both.
template <typename Ready>
[[nodiscard]] bool wait_for(const WaitPolicy& policy, std::chrono::microseconds patience,
                            Ready&& ready) {
  return look_for(policy, ready) ||
         yield_for(policy, patience, std::chrono::steady_clock::now(), ready);
}

/// Ends a wait since `begin` that has come to nothing: throws Error{peer}, with a roll call
/// LostRank. `waiting`: "rank 1 of 4: barrier: waiting for rank 3", and rank 3 of the group.
[[noreturn]] void give_up_waiting(const WaitPolicy& policy, Awaited waiting,
                                  std::chrono::steady_clock::time_point begin);

/// Looks until `ready()` holds. Throws Error{peer} with what `waiting()` says (as above) at the
/// deadline, or when a rank has failed or waited in vain.
template <typename Ready, typename Waiting>
void wait_or_fail(const WaitPolicy& policy, Ready&& ready, Waiting&& waiting) {
  if (look_for(policy, ready)) return;
  const auto begin = std::chrono::steady_clock::now();
  if (!yield_for(policy, policy.timeout, begin, ready)) give_up_waiting(policy, waiting(), begin);
}

}  // namespace moesaic
