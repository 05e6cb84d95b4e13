#include "launch/job/binding.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <atomic>
#include <latch>
#include <set>

namespace moesaic {

Binding plan_binding(std::span<const RankInfo> ranks, std::size_t self, const Topology& topology) {
  const RankInfo& own = ranks[self];
  const auto cores = static_cast<std::int64_t>(topology.cores.size());
  if (topology.quota.cores > 0 && topology.quota.cores < static_cast<double>(cores)) {
    return {.reason = fmt::format("{} allows {:.3g} of {} cores", topology.quota.source,
                                  topology.quota.cores, cores)};
  }
  std::int64_t threads = 0;  // of all ranks with this cpuset
  std::int64_t before = 0;   // of those before this one
  std::int64_t sharers = 0;  // ranks with this cpuset
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankInfo& rank = ranks[r];
    if (!on_one_machine(rank, own)) continue;
    if (r != self && (rank.cpuset_is_cut || own.cpuset_is_cut)) {
      return {.reason = fmt::format(
                  "the cpus of ranks {} and {} are too many ranges to be compared", self, r)};
    }
    if (!cpusets_overlap(rank.cpus(), own.cpus())) continue;
    if (rank.cpus() != own.cpus()) {
      return {.reason =
                  fmt::format("ranks {} and {} may use different cores that overlap", self, r)};
    }
    ++sharers;
    threads += rank.threads;
    if (r < self) before += rank.threads;
  }
  if (threads > cores) {
    return {.reason = fmt::format("{} threads share {} cores", threads, cores)};
  }
  // Fewer than the ranks are left where these have equal shares.
  if (cores - threads >= sharers && cores == topology.machine_cores) {
    return {.reason =
                fmt::format("{} threads leave some of all {} cores to others", threads, cores)};
  }
  const auto first = topology.cores.begin() + before * cores / threads;
  return {.cores = {first, first + own.threads}};
}

bool bind_threads(ThreadPool& pool, const Binding& binding) {
  std::vector<int> all;
  for (const UsableCore& core : binding.cores) all.push_back(core.cpu);
  const bool has_enough = static_cast<std::size_t>(pool.size()) <= all.size();
  std::atomic<bool> is_bound = true;
  std::latch arrived(pool.size());  // a thread that waits here takes no second task
  pool.parallel_for(pool.size(), [&](std::int64_t, int worker) {
    const std::span<const int> cpus = all;
    const bool done =
        bind_this_thread(has_enough ? cpus.subspan(static_cast<std::size_t>(worker), 1) : cpus);
    if (!done) is_bound = false;
    arrived.arrive_and_wait();
  });
  return is_bound;
}

std::string binding_text(const Binding& binding) {
  if (binding.cores.empty()) return "not bound: " + binding.reason;
  std::vector<int> cpus;
  std::set<int> nodes;
  for (const UsableCore& core : binding.cores) {
    cpus.push_back(core.cpu);
    nodes.insert(core.numa_node);
  }
  return fmt::format("{} {}, NUMA {} {}", cpus.size() == 1 ? "cpu" : "cpus", fmt::join(cpus, " "),
                     nodes.size() == 1 ? "node" : "nodes", fmt::join(nodes, " "));
}

}  // namespace moesaic
