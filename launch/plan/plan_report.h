#pragma once

#include <optional>
#include <string>

#include "launch/plan/job_plan.h"
#include "launch/plan/job_time.h"

namespace moesaic {

/// All that moesaic plan tells.
struct PlanReport {
  JobMemory memory;
  MemoryLimit limit;
  CostRanks ranks;
  bool is_layer = false;                        // of --shape, without a model
  std::int64_t sequences = 0;                   // that a rank has under way at a time
  std::int64_t sequence_tokens = 0;             // of each, at most
  std::optional<PlannedRecompute> recompute{};  // of sft
  std::optional<DiskDemand> disk{};             // of sft
  ExpertTraffic traffic;                        // of a pass over prompts
  std::optional<JobTime> time;                  // with a machine
  std::string no_time;                          // why there is none
  // That fit; 0: not even 1 does, nothing: the job has no such option.
  std::optional<std::int64_t> largest_ctx_size{};
  std::optional<std::int64_t> largest_parallel{};
  std::int64_t largest_batch_size = 0;
  std::optional<std::int64_t> gpu_limit{};  // bytes of a GPU, as --gpu-memory says
  std::int64_t most_gpu_experts = 0;        // with it: the largest --gpu-experts that fits
  int fewest_nodes = 0;                     // 0: no number of them suffices
  std::string command;
  std::string weights_source;
  std::string runtime_source;
  std::string threads_source;
  std::string routing_source;

  [[nodiscard]] bool fits() const {
    return memory.node.total() <= limit.available_bytes &&
           (!gpu_limit || memory.gpu.total() <= *gpu_limit);
  }
};

[[nodiscard]] std::string plan_text(const PlanReport& report);
/// One JSON object.
[[nodiscard]] std::string plan_json(const PlanReport& report);

}  // namespace moesaic
