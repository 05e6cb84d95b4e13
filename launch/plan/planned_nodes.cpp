#include "launch/plan/planned_nodes.h"

#include <algorithm>

#include "base/error.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

CostRanks planned_ranks(const Options& options, std::int64_t num_experts) {
  const auto ranks = static_cast<int>(options.plan_ranks);
  const auto on_node = static_cast<int>(options.ranks_per_node);
  CostRanks result{.ranks = ranks,
                   .ranks_per_node = on_node == 0 ? ranks : on_node,
                   .threads = std::max(1, static_cast<int>(options.threads)),
                   .expert_replicas = static_cast<int>(options.expert_replicas),
                   .by_messages = options.transport == Transport::mpi};
  require_experts(num_experts, ranks, result.expert_replicas);
  return result;
}

JobMemory job_memory(const CostRanks& ranks, const std::vector<PlaceMemory>& places) {
  JobMemory result;
  std::vector<MemoryPlan> nodes(static_cast<std::size_t>(ranks.nodes()));
  for (int rank = 0; rank < ranks.ranks; ++rank) {
    const PlaceMemory& place = places[static_cast<std::size_t>(rank % ranks.sharers())];
    const int node = rank / ranks.ranks_per_node;
    MemoryPlan& plan = nodes[static_cast<std::size_t>(node)];
    if (plan.num_ranks++ == 0) plan.items = place.memory.shared;
    plan.items += place.memory.own;
    plan.keeps_layers = place.memory.keeps_layers;
    for (std::size_t i = 0; i < plan.expert_formats.size(); ++i) {
      plan.expert_formats[i] += place.expert_formats[i];
    }
    result.ranks.push_back(
        {rank, node, place.first_expert, place.experts, place.memory.own.total(), place.gpu});
  }
  result.node = *std::ranges::max_element(nodes, {}, &MemoryPlan::total);
  result.gpu = std::ranges::max_element(places, {}, [](const PlaceMemory& place) {
                 return place.gpu.total();
               })->gpu;
  return result;
}

}  // namespace moesaic
