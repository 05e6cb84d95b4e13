#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/job/gpu_memory.h"
#include "launch/job/memory_plan.h"
#include "launch/options/options.h"
#include "src/parallel/expert_loads.h"

namespace moesaic {

/// The ranks of a command line. Throws Error{usage} for ranks that cannot share so many experts, or
/// replicas of them.
[[nodiscard]] CostRanks planned_ranks(const Options& options, std::int64_t num_experts);

/// What a rank of the planned job holds.
struct PlannedRank {
  int rank = 0;
  int node = 0;
  std::optional<std::int64_t> first_expert{};  // where the others follow on it
  std::int64_t experts = 0;                    // of each layer
  std::int64_t bytes = 0;                      // its own, without what its node shares
  GpuMemory gpu{};                             // of its GPU
};

/// The node of the planned job that needs most.
struct JobMemory {
  MemoryPlan node;
  std::vector<PlannedRank> ranks;  // of all nodes
  GpuMemory gpu;                   // of the GPU that is to hold most
};

/// What a rank holds and takes.
struct PlaceMemory {
  RankMemory memory;
  std::optional<std::int64_t> first_expert{};
  std::int64_t experts = 0;
  WeightBytes::ByFormat expert_formats{};
  GpuMemory gpu{};
};
/// `places`: by a rank's place among those that share the experts.
[[nodiscard]] JobMemory job_memory(const CostRanks& ranks, const std::vector<PlaceMemory>& places);

/// The fewest nodes, with as many ranks each as `ranks` has, whose ranks `fit`; 0: none.
template <typename Fit>
[[nodiscard]] int fewest_nodes(const CostRanks& ranks, std::int64_t num_experts, const Fit& fit) {
  for (int nodes = 1;; ++nodes) {
    CostRanks more = ranks;
    more.ranks = nodes * ranks.ranks_per_node;
    if (more.ranks % more.expert_replicas != 0) continue;
    if (more.sharers() > num_experts) return 0;
    if (fit(more)) return nodes;
  }
}

}  // namespace moesaic
