#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/cuda/device_roofs.h"
#include "launch/job/gpu_road.h"
#include "launch/job/rank_device.h"
#include "launch/shapes/layer_copies.h"
#include "launch/shapes/named_shapes.h"
#include "src/moe/expert_mask.h"

namespace moesaic {

/// The GPUs of a benchmark of layers, as --gpu-experts says.
class LayerGpu {
 public:
  /// `layers`: all that will be measured. Collective. Throws AgreedError on all ranks if there is
  /// none but should be.
  LayerGpu(const Runtime& runtime, std::span<const LayerShape> layers);

  /// How many experts of a layer are on GPUs, those of ranks without one not counted.
  [[nodiscard]] std::int64_t num_experts(const LayerShape& shape) const;
  /// Measures what the ranks' GPUs reach at most, if such a layer has experts there. Collective.
  void measure_roofs(const LayerShape& shape, const Layout& layout);
  /// All of them together, of what was measured; `isa` as "sm_90/mma", of the first.
  struct Roofs {
    std::string isa;
    double operations_per_second;  // infinite where nothing measures it
    double bytes_per_second;
  };
  /// Collective.
  [[nodiscard]] Roofs roofs(const Layout& layout) const;
  /// Why a layer cannot have experts on a GPU; empty if it can, or if it is to have none.
  [[nodiscard]] std::string missing(const LayerShape& shape, const Layout& layout) const;
  /// Where this rank's weights go; `memory` is the host's.
  /// Graphs are of the last shape: no layer of another one runs from then on.
  [[nodiscard]] LayerPlace place(const LayerShape& shape, std::span<std::byte> memory);

 private:
  [[nodiscard]] std::string_view kernels_of(const Layout& layout) const;
  [[nodiscard]] ExpertMask mask_of(const LayerShape& shape) const;

  const Runtime* runtime_;
  std::int64_t wanted_ = 0;  // experts of a layer, of those that have so many
  RankDevice gpu_;
  std::unique_ptr<DeviceGraphMemory> graphs_;
  std::unique_ptr<DeviceExpertsWorkspace> work_;  // null: no experts are on this rank's GPU
  std::unique_ptr<GpuRoad> road_;
  std::optional<DeviceRoofs> roofs_;  // of the first rank of a GPU
  ExpertsAtWork at_work_;
  std::vector<int> has_gpu_;  // [ranks that share the experts]
};

}  // namespace moesaic
