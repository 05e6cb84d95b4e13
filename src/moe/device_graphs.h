#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>

#include "base/device.h"
#include "kernels/cuda/choice_plan.h"
#include "kernels/cuda/mlp_products.h"
#include "kernels/cuda/row_moves.h"
#include "src/moe/device_pass.h"

namespace moesaic {

/// What batches need that go through the graphs of a model's layers, at most.
struct DeviceGraphShape {
  DevicePassShape expert{};
  std::int64_t topk = 0;     // experts of a token
  std::int64_t experts = 0;  // of a layer, on one GPU

  /// Of the GPU's memory, and page-locked of the host's, results that come down included.
  [[nodiscard]] std::int64_t device_bytes() const;
  [[nodiscard]] std::int64_t pinned_bytes() const;
};

/// Memory that all batches of graphs go through, one at a time, at addresses that stay, and the
/// kernels that plan and sum.
struct DeviceGraphMemory {
  /// Inputs of a batch, at most. Graphs are made for 1, 2, 4, ... inputs.
  static constexpr std::int64_t kMostInputs = cuda::kMostPlannedInputs;
  [[nodiscard]] static std::int64_t budget_of(std::int64_t inputs) noexcept;

  /// Takes all of it. Throws Error{usage} for more experts than a GPU plans for. `gpu` outlives
  /// this.
  DeviceGraphMemory(Device& gpu, const DeviceGraphShape& most);

  /// Where each part of what goes up lies, in bytes: rows [budget, hidden] bf16 come first.
  struct Inputs {
    std::int64_t count = 0;    // int32
    std::int64_t experts = 0;  // [budget, topk] int32
    std::int64_t weights = 0;  // [budget, topk] f32
    std::int64_t end = 0;
  };
  [[nodiscard]] Inputs inputs_of(std::int64_t budget, std::int64_t topk) const noexcept;
  /// A batch of so many inputs can go through.
  [[nodiscard]] bool takes(std::int64_t num_inputs, std::int64_t topk) const noexcept {
    return num_inputs > 0 && num_inputs <= kMostInputs && topk <= shape.topk;
  }

  Device& device;
  DeviceGraphShape shape;
  DeviceChoicePlan plan;
  DeviceRowMoves moves;
  PinnedBuffer host_inputs;  // as Inputs says
  DeviceBuffer inputs;
  DeviceBuffer row_indices;
  DeviceBuffer places;
  DeviceBuffer first_rows;
  DeviceBuffer tiles;
  DeviceBuffer inner;
  DeviceBuffer rounded;
  DeviceBuffer results;          // [rows, hidden] f32
  DeviceBuffer sums;             // [inputs, hidden] f32
  PinnedBuffer host_sums;        // the same
  std::int64_t num_batches = 0;  // that have gone through so far
};

/// What becomes of the results of a batch.
enum class GraphResults {
  rows,  ///< they stay in DeviceGraphMemory::results, by expert, as ExecutePlan orders outputs
  sums   ///< each input's are summed by ascending expert id, and come down to host_sums
};

/// One layer's experts on a GPU as graphs, one for each number of inputs: a batch goes up, or the
/// ids of its experts where its rows are there, the GPU finds the rows of its experts, multiplies
/// and sums, all by one launch. Each is made when it is needed first.
class ExpertGraphs {
 public:
  /// `mlps_of_experts` [experts of the model]: which of `mlps` each is, or -1. `memory` and `mlps`
  /// outlive this. Waits until the list is on the GPU.
  ExpertGraphs(DeviceGraphMemory& memory, DeviceMlps& mlps,
               std::span<const std::int32_t> mlps_of_experts);

  struct Batch {
    std::int64_t inputs = 0;  // that stand in host_inputs: rows, count, experts, weights for sums
    std::int64_t topk = 0;
    GraphResults results = GraphResults::rows;
    bool has_rows = false;  // their rows are in DeviceGraphMemory::inputs by then, and do not go up
  };
  /// Makes what launch() would make first. A driver may take memory for it, and wait.
  void prepare(const Batch& batch);
  /// Asks for all of it; waits for nothing.
  void launch(const Batch& batch);

 private:
  [[nodiscard]] DeviceGraph& graph_of(const Batch& batch);
  void ask(std::int64_t budget, const Batch& batch);

  DeviceGraphMemory& memory_;
  DeviceMlps& mlps_;
  std::int64_t num_experts_;
  std::int64_t num_mlps_;
  DeviceBuffer mlps_of_experts_;
  std::map<std::tuple<std::int64_t, std::int64_t, GraphResults, bool>, DeviceGraph> graphs_;
};

}  // namespace moesaic
