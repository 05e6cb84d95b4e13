#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cuda/mlp_products.h"
#include "src/moe/device_graphs.h"
#include "src/moe/device_pass.h"
#include "src/moe/experts.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

class DeviceRoad;

/// What the layers of a model share to run experts on this rank's GPU.
struct DeviceExpertsWorkspace {
  /// All must outlive this. `deadline_s`: after it a GPU that does not answer counts as lost.
  DeviceExpertsWorkspace(Device& gpu, DeviceKernels which, Communicator& experts, double deadline_s)
      : device(gpu), kernels(which), ranks(experts), deadline_seconds(deadline_s) {}

  Device& device;
  DeviceKernels kernels;
  Nvfp4Activations nvfp4_activations = Nvfp4Activations::bf16;  // of experts in nvfp4
  const GroupedLibrary* library = nullptr;  // of DeviceKernels::cutlass; outlives this
  Communicator& ranks;                      // whose rows go on while this rank waits for its GPU
  double deadline_seconds;
  // Of the pass that is under way, at most one:
  DeviceScratch scratch;
  PinnedBuffer host_inputs;  // [inputs, hidden] bf16, then [rows] int32 the input of each row
  DeviceBuffer inputs;
  PinnedBuffer host_results;  // [rows, hidden] f32
  DeviceBuffer results;
  std::unordered_map<const std::byte*, std::int32_t> input_places;  // of rows by their address
  /// Null, or how batches go whose experts are all on GPUs: with several ranks the same on all.
  DeviceRoad* road = nullptr;
  /// Null, or what graphs of small batches go through.
  DeviceGraphMemory* graphs = nullptr;

  /// Calls `work`; errors of it say in which layer they were.
  void naming_place(const std::function<void()>& work) const;
};

/// Experts in the memory of this rank's GPU. A token's row is copied there once, whatever number of
/// them it is for.
class DeviceExperts final : public Experts {
 public:
  /// `experts` [slots]: those of `own` have panels on the device, in one size and layout; they have
  /// no adapters. `work` must outlive this.
  DeviceExperts(std::span<const AdaptedMlp> experts, const SlotMask& own,
                DeviceExpertsWorkspace& work);

  /// Copies the rows and asks for all of it; waits for nothing.
  void start(const ExpertBatch& batch) override;
  void finish() override;
  /// Of the GPU's memory, for so many rows of start_there() and their inputs.
  void make_room_there(std::int64_t num_rows, std::int64_t num_inputs);
  /// Asks for the products of a batch whose rows and results are in the GPU's memory: slot s, which
  /// is there if it has any, has rows [slot_begin[s], slot_begin[s + 1]) of the pass.
  void start_there(const DeviceMlps::Pass& pass, std::span<const std::int64_t> slot_begin);
  /// Asks for the sums of the batch that stands in the graphs' memory, all of whose experts are on
  /// this GPU.
  void start_sums(std::int64_t num_inputs, std::int64_t topk);
  /// Of who plans_itself(), once it has been told the placement.
  [[nodiscard]] ExpertGraphs& graphs() noexcept { return *graphs_; }
  [[nodiscard]] bool plans_itself() const noexcept override { return work_->graphs != nullptr; }
  void tell_placement(const ExpertPlacement& placement, int own_rank) override;
  [[nodiscard]] DeviceExperts* on_device() noexcept override { return this; }
  /// Whether all experts of those slots are on this GPU.
  [[nodiscard]] bool has(std::span<const ExpertId> slots) const noexcept;
  /// Throws Error{usage}: gradients do not come from a GPU.
  void backward(const ExpertBackward& batch, AdapterGradients& gradients) override;

 private:
  /// Rows of the results that are outputs [first_output, first_output + count) of the batch.
  struct Part {
    std::int64_t first_row;
    std::int64_t first_output;
    std::int64_t count;
  };
  void make_parts(const ExpertBatch& batch);
  void choose_rows(const ExpertBatch& batch);
  [[nodiscard]] bool choose_inputs(const InputChoices& choices);
  void launch_graph(const ExpertBatch& batch);
  void take_results(const ExpertBatch& batch, CudaAddress results, std::int64_t rows);
  void upload_inputs(const ExpertBatch& batch);
  [[nodiscard]] std::int64_t num_rows() const { return std::ssize(row_inputs_); }

  DeviceExpertsWorkspace* work_;
  std::vector<std::int32_t> mlps_of_slots_;  // [slots] -1: not here
  DeviceMlps mlps_;
  std::vector<std::int32_t> mlps_of_experts_;  // [experts of the model] -1: not here
  std::optional<ExpertGraphs> graphs_;
  // Of the batch that is under way:
  std::vector<DeviceRows> groups_;
  std::vector<Part> parts_;
  std::vector<std::int32_t> row_inputs_;      // [rows]
  std::vector<const std::byte*> input_rows_;  // [inputs]
  std::vector<std::int64_t> own_inputs_;      // of InputChoices, those with choices of experts here
  MatrixView<float> outputs_;
};

}  // namespace moesaic
