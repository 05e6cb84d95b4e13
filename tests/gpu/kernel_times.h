#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.h"
#include "kernels/cuda/grouped_library.h"

namespace moesaic {

/// One pass through the experts of a layer of Qwen3-30B-A3B with even routing: 128 of 768 x 2048, 8
/// for each token, weights cold in the GPU's memory, launches included; of graphs also the choices'
/// way up and the plan, which the host has made before elsewhere.
struct KernelTime {
  std::string kernels{};  // "mma/nvfp4", "graph of mma/nvfp4"
  std::int64_t tokens = 0;
  double seconds = 0;     // the median
  double bytes = 0;       // of the weights of the experts that have rows
  double operations = 0;  // 2 a multiply-add

  [[nodiscard]] double weight_gbs() const { return bytes / seconds / 1e9; }
  [[nodiscard]] double tflops() const { return operations / seconds / 1e12; }
};

/// `cutlass` may be null: then its products are not among them.
[[nodiscard]] std::vector<KernelTime> time_kernels(Device& device, const GroupedLibrary* cutlass);

}  // namespace moesaic
