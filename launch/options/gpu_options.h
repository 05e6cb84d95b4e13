#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/options/option_values.h"

namespace moesaic {

/// Which experts are on GPUs.
struct GpuOptions {
  std::string gpu_experts = "none";  // none, all, auto, a number, or a file
  std::int64_t gpu_memory = 90;      // percent of a GPU's memory
  GpuGraph gpu_graph = GpuGraph::off;
  GpuKernel gpu_kernel = GpuKernel::mma;
  std::optional<std::string> cutlass;      // a library; nothing: the one of this program
  std::optional<std::string> expert_load;  // a file
  std::optional<std::string> nccl;         // a library; nothing: the one that the system finds
  std::optional<ByteCount> gpu_bytes;      // of plan: what a GPU has
  Processor device = Processor::cpu;       // of bench kernels

  [[nodiscard]] bool has_gpu_experts() const { return gpu_experts != "none"; }
  /// As many as fit, rather than those that the option says.
  [[nodiscard]] bool fits_gpu_experts() const { return gpu_experts == "auto"; }
};

}  // namespace moesaic
