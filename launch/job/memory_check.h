#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "launch/job/runtime.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"

namespace moesaic {

/// What a verb is going to keep in memory besides the weights.
struct Workload {
  std::int64_t sequences = 1;       // under way at a time on this rank
  std::int64_t capacity = 0;        // positions of the cache of each
  std::int64_t batch_tokens = 1;    // of one forward pass
  std::int64_t logits_rows = 1;     // of one forward pass
  std::int64_t least_capacity = 0;  // that will do where memory is short; 0: nothing less will
  // Of fine-tuning:
  std::int64_t adapter_bytes = 0;  // of a rank: adapters with their gradients and moments
  std::int64_t kept_bytes = 0;     // of a rank: what a backward pass needs of the forward pass
};

/// Bytes that a node needs or has.
struct MemoryPlan {
  std::int64_t expert_bytes = 0;
  WeightBytes::ByFormat expert_formats{};  // of the packed experts, mapped ones too
  std::int64_t node_bytes = 0;             // of all other weights, once
  std::int64_t cache_bytes = 0;
  std::int64_t activation_bytes = 0;
  std::int64_t adapter_bytes = 0;
  std::int64_t kept_bytes = 0;
  std::int64_t num_ranks = 0;

  [[nodiscard]] std::int64_t total() const noexcept {
    return expert_bytes + node_bytes + cache_bytes + activation_bytes + adapter_bytes + kept_bytes;
  }
};

/// Memory of this node that may be used: --memory-limit, or else what system and cgroup leave.
[[nodiscard]] MemoryLimit node_memory(const Options& options);

/// Bytes that this rank may take beside what it has: its share of what --memory-limit allows on
/// this node, and of what system and cgroup leave.
[[nodiscard]] std::int64_t spare_memory(const Runtime& runtime);

/// Working memory of one rank for one forward pass, estimated: rows of hidden states, projections
/// and experts, with twice the average load for this rank's experts.
[[nodiscard]] std::int64_t activation_bytes(const ModelConfig& config, const Workload& work);

/// Throws Error{resource} that says what is needed, what there is and what would help, if `plan`
/// does not fit into `available_bytes`, which `source` sets.
void require_memory(const MemoryPlan& plan, std::int64_t available_bytes, std::string_view source);

/// The most positions up to `work.capacity` for whose cache so many bytes suffice.
[[nodiscard]] std::int64_t positions_in(const ModelConfig& config, Precision precision,
                                        const Workload& work, std::int64_t cache_bytes);

/// Checks on every node, before anything is loaded, that the ranks there have the memory for what
/// is planned. Returns the capacity for which they have: that of the plan, or as much of it as fits
/// if less will do, the same on all ranks. Throws AgreedError on all ranks if they have not.
/// Collective.
[[nodiscard]] std::int64_t check_memory(const Runtime& runtime, const ModelConfig& config,
                                        const WeightBytes& weights, const Workload& work);

/// Whether they have it. Collective.
[[nodiscard]] bool memory_fits(const Runtime& runtime, const ModelConfig& config,
                               const WeightBytes& weights, const Workload& work);

/// "5.62 MiB bf16", "1.20 GiB int4 and 20.0 MiB bf16": bytes of each format that there are, most
/// first.
[[nodiscard]] std::string bytes_text(const WeightBytes::ByFormat& bytes);
/// "experts 5.62 MiB bf16, others 1.20 MiB bf16 and 80.0 KiB f32".
[[nodiscard]] std::string weights_text(const WeightBytes::ByFormat& experts,
                                       const WeightBytes::ByFormat& others);

}  // namespace moesaic
