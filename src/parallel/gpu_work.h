#pragma once

#include <cstddef>

#include "src/parallel/step_work.h"

namespace moesaic {

// Of a step's work, what GPUs do, and what that takes.

/// Experts of that layer of the model that are on GPUs.
[[nodiscard]] double experts_on_gpus(const CostModel& model, std::size_t layer);
/// Whether the GPU of a rank sums the results of its tokens in that layer: it has all experts.
[[nodiscard]] bool sums_on_gpu(const CostModel& model, const CostRanks& ranks, std::size_t layer);

/// Some layers of a model that are alike.
struct AlikeLayers {
  std::size_t first = 0;
  double count = 1;
};
/// What the GPU with most to do does for the experts of those layers, without what the CPU does.
[[nodiscard]] StepWork::GpuLayers gpu_layers(const CostModel& model, const CostRanks& ranks,
                                             const AlikeLayers& layers, const LayerLoad& load);
/// Choices of one such layer that the host plans for a GPU.
[[nodiscard]] double planned_for_gpu(const CostModel& model, const CostRanks& ranks,
                                     const LayerLoad& load);

/// What some layers take on a GPU. Reading weights and multiplying happen at the same time.
struct GpuSeconds {
  double calls = 0;
  double waits = 0;
  double up = 0;
  double down = 0;
  double reads = 0;
  double products = 0;

  [[nodiscard]] double total() const {
    return calls + waits + up + down + (reads > products ? reads : products);
  }
};
/// Throws Error{usage} for kernels that were not measured, and where no GPU was.
[[nodiscard]] GpuSeconds gpu_seconds(const StepWork::GpuLayers& layers,
                                     const MachineRates& machine);

}  // namespace moesaic
