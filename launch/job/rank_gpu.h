#pragma once

#include <memory>

#include "launch/job/gpu_choice.h"
#include "launch/job/gpu_road.h"
#include "launch/job/memory_plan.h"
#include "launch/job/rank_device.h"
#include "src/model/device_weights.h"
#include "src/model/model_weights.h"
#include "src/moe/device_experts.h"

namespace moesaic {

/// This rank's GPU, and which of the rank's experts go there.
class RankGpu {
 public:
  /// What is going to be loaded.
  struct Model {
    const ModelConfig& config;
    const ModelLoader& weights;  // planned
    const HeldExperts& own;      // experts of this rank
    const Workload& work;
  };
  /// Chooses as --gpu-experts says, before anything is loaded, and tells what was chosen.
  /// Collective. Throws AgreedError on all ranks for a choice that the model or the program cannot
  /// follow, if no rank has a GPU, and if a GPU has too little memory.
  RankGpu(const Runtime& runtime, const Model& model);

  /// Of this rank's experts.
  [[nodiscard]] const ExpertMask& mask() const noexcept { return mask_; }
  /// Null for a rank whose experts are all on the CPU.
  [[nodiscard]] DeviceWeights* weights() const noexcept { return weights_.get(); }
  [[nodiscard]] DeviceExpertsWorkspace* workspace() const noexcept { return workspace_.get(); }
  /// Whether batches may stay on GPUs from a layer's begin to its end; the same on all ranks that
  /// share experts.
  [[nodiscard]] bool has_road() const noexcept {
    return road_ != nullptr && road_->get() != nullptr;
  }
  /// Waits for what other ranks still have to do with this one's GPU; on the way out of an error
  /// gives it up. Before memory of the GPU is given back.
  void disconnect() noexcept { road_.reset(); }

 private:
  void settle_activations(const Model& model);
  void make_graphs(const Runtime& runtime, const Model& model);
  void choose(const Runtime& runtime, const Model& model, const GpuWish& wish);
  [[nodiscard]] bool has_all(const Model& model) const;
  void tell(const Runtime& runtime, const Model& model) const;

  ExpertMask mask_;
  std::int64_t weight_bytes_ = 0;
  std::string no_room_;  // of auto, why no experts are there; empty: some are
  RankDevice gpu_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<DeviceGraphMemory> graphs_;
  std::unique_ptr<DeviceExpertsWorkspace> workspace_;
  std::unique_ptr<GpuRoad> road_;
};

}  // namespace moesaic
