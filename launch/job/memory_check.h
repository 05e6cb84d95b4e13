#pragma once

#include <cstdint>
#include <string>

#include "base/memory.h"
#include "launch/job/memory_plan.h"
#include "launch/job/runtime.h"
#include "src/parallel/expert_loads.h"

namespace moesaic {

/// Memory of this node that may be used: --memory-limit, which a verb may call otherwise, or else
/// what system and cgroup leave.
[[nodiscard]] MemoryLimit node_memory(const Options& options,
                                      std::string_view option = "--memory-limit");

/// Bytes that this rank may take beside what it has: its share of what --memory-limit allows on
/// this node, and of what system and cgroup leave.
[[nodiscard]] std::int64_t spare_memory(const Runtime& runtime);

/// Throws Error{resource} naming what sets the limit, and the least that would do, unless this rank
/// may take `bytes` beside what it has, for `use`, which they need: "self-tests".
void require_spare_memory(const Runtime& runtime, std::int64_t bytes, std::string_view use);

/// What was found to fit.
struct FittingMemory {
  /// Of a sequence's cache: that of the plan, or as much of it as fits if less will do; the same on
  /// all ranks.
  std::int64_t capacity = 0;
  std::int64_t node_bytes = 0;  ///< that the ranks of this node need together
};

/// All ranks, as a plan has them.
[[nodiscard]] CostRanks job_ranks(const Runtime& runtime);

/// The ranks among which tokens of `work` go to and fro. Collective over the world.
[[nodiscard]] RankSharing share_ranks(const Runtime& runtime, const ModelConfig& config,
                                      const Workload& work);

/// Checks on every node, before anything is loaded, that the ranks there have the memory for what
/// is planned. Throws AgreedError on all ranks if they have not. Collective.
[[nodiscard]] FittingMemory check_memory(const Runtime& runtime, const ModelConfig& config,
                                         const WeightBytes& weights, const Workload& work);

/// The same for a rank whose memory is planned already, but for what the program has. Returns what
/// the ranks of this node need together. Collective.
[[nodiscard]] std::int64_t check_rank_memory(const Runtime& runtime, RankMemory rank,
                                             const WeightBytes::ByFormat& experts);

/// Whether they have it. Collective.
[[nodiscard]] bool memory_fits(const Runtime& runtime, const ModelConfig& config,
                               const WeightBytes& weights, const Workload& work);

/// Most bytes that the ranks of this node had at a time, what they share once: the same on all of
/// them. Collective over the node.
[[nodiscard]] std::int64_t node_peak_bytes(Communicator& node);

/// "5.62 MiB bf16", "1.20 GiB int4 and 20.0 MiB bf16": bytes of each format that there are, most
/// first.
[[nodiscard]] std::string bytes_text(const WeightBytes::ByFormat& bytes);
/// "experts 5.62 MiB bf16, others 1.20 MiB bf16 and 80.0 KiB f32".
[[nodiscard]] std::string weights_text(const WeightBytes::ByFormat& experts,
                                       const WeightBytes::ByFormat& others);

}  // namespace moesaic
