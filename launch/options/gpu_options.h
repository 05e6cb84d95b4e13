#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moesaic {

/// Which experts are on GPUs.
struct GpuOptions {
  std::string gpu_experts = "none";        // none, all, auto, a number, or a file
  std::int64_t gpu_memory = 90;            // percent of a GPU's memory
  std::optional<std::string> expert_load;  // a file
  std::optional<std::string> nccl;         // a library; nothing: the one that the system finds
};

}  // namespace moesaic
