#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launch/job/gpu_choice.h"
#include "launch/job/memory_plan.h"
#include "launch/options/options.h"
#include "src/model/model_weights.h"

namespace moesaic {

/// Bytes of one GPU that a rank needs.
struct GpuMemory {
  std::int64_t weights = 0;  // packed experts
  std::int64_t rows = 0;     // of a pass, and results; none without experts

  [[nodiscard]] std::int64_t total() const noexcept { return weights == 0 ? 0 : weights + rows; }
};
/// "experts 14.2 GiB, rows 310 MiB"
[[nodiscard]] std::string gpu_items_text(const GpuMemory& memory);

/// Packed bytes of a rank's experts `own`. Throws Error{usage} for those of the wish's mask (auto:
/// all) that GPUs cannot multiply as it says.
[[nodiscard]] ExpertSizes expert_sizes(const ModelConfig& config, const ModelLoader& weights,
                                       const HeldExperts& own, const GpuWish& wish);

/// For one pass of the largest layer, whichever way rows go.
[[nodiscard]] std::int64_t gpu_pass_bytes(const ModelConfig& config, const Workload& work,
                                          const RankSharing& sharing, const Options& options);

/// A GPU that is asked for too much.
struct GpuLimit {
  std::string gpu;                // which, for messages
  std::int64_t bytes = 0;         // that it has for this
  std::string source;             // what sets that
  std::int64_t most_experts = 0;  // the largest --gpu-experts that fits
};
/// Throws Error{resource} that says what is needed, the largest item, what there is and what fits,
/// if `need` is more.
void require_gpu_memory(const GpuMemory& need, const GpuLimit& limit, std::string_view wanted);

}  // namespace moesaic
