#pragma once

#include <cstdint>
#include <span>

#include "base/device.h"
#include "kernels/cuda/mlp_tiles.h"
#include "kernels/cuda/plan_arguments.h"

namespace moesaic {

/// How large a plan that a GPU makes may become: memory and launches are made for it.
struct PlanRoom {
  std::int64_t inputs = 0;  // at most cuda::kMostPlannedInputs
  std::int64_t topk = 0;    // choices of each
  std::int64_t mlps = 0;    // at most cuda::kMostPlannedMlps

  [[nodiscard]] std::int64_t rows() const noexcept { return inputs * topk; }
};
/// The lists of tiles of kernels of such `sizes` (mlp_tiles.h).
[[nodiscard]] cuda::TileKinds tile_kinds(std::span<const int> sizes, const PlanRoom& room);
/// Tiles of all lists.
[[nodiscard]] std::int64_t num_tiles(const cuda::TileKinds& kinds) noexcept;

/// Plans what a GPU's MLPs do for a batch, on the GPU, from the experts that its inputs chose: rows
/// by MLP and in each in the order of inputs, as DispatchPlanner::plan_execution() orders outputs
/// and tiles_of_kind() cuts them.
class DeviceChoicePlan {
 public:
  /// `device` must outlive this.
  explicit DeviceChoicePlan(Device& device);

  /// All addresses are of the device's memory.
  struct Request {
    CudaAddress num_inputs = 0;       // int32: how many of the room's inputs there are
    CudaAddress experts = 0;          // [inputs, topk] int32 ids; no input has one twice
    CudaAddress mlps_of_experts = 0;  // [num_experts] int32; -1: not one of this GPU's
    std::int64_t num_experts = 0;
    // To be written:
    CudaAddress row_indices = 0;  // [rows] int32 the input of each row
    CudaAddress places = 0;       // [inputs, topk] int32 the row of each choice, or -1
    CudaAddress first_rows = 0;   // [mlps + 1] int32
    CudaAddress tiles = 0;        // MlpTile, as `kinds` says
    PlanRoom room{};
    cuda::TileKinds kinds{};
  };
  /// Asks for the plan; waits for nothing.
  void make(const Request& request);

 private:
  Device& device_;
  CudaFunction plan_;
};

}  // namespace moesaic
