#include "kernels/cuda/choice_plan.h"

#include <numeric>

#include "base/error.h"
#include "kernels/cuda/device_launch.h"

namespace moesaic {

cuda::TileKinds tile_kinds(std::span<const int> sizes, const PlanRoom& room) {
  cuda::TileKinds kinds{};
  kinds.count = narrow<std::int32_t>(std::ssize(sizes));
  for (std::size_t kind = 0; kind < sizes.size(); ++kind) {
    kinds.rows[kind] = sizes[kind];
    kinds.most[kind] = narrow<std::int32_t>(most_tiles_of_kind(
        sizes, kind, {.rows = room.rows(), .mlps = room.mlps, .most_of_one = room.inputs}));
  }
  return kinds;
}

std::int64_t num_tiles(const cuda::TileKinds& kinds) noexcept {
  return std::accumulate(std::begin(kinds.most), std::end(kinds.most), std::int64_t{0});
}

DeviceChoicePlan::DeviceChoicePlan(Device& device)
    : device_(device), plan_(device.kernel("rows/plan", "plan")) {}

void DeviceChoicePlan::make(const Request& request) {
  const PlanRoom& room = request.room;
  require(room.inputs <= cuda::kMostPlannedInputs && room.mlps <= cuda::kMostPlannedMlps,
          ErrorKind::usage,
          "a GPU plans for up to {} inputs and {} experts of a layer, not for {} and {}",
          cuda::kMostPlannedInputs, cuda::kMostPlannedMlps, room.inputs, room.mlps);
  cuda::PlanArguments arguments = {
      .num_inputs = pointer_to<const std::int32_t>(request.num_inputs),
      .experts = pointer_to<const std::int32_t>(request.experts),
      .mlps_of_experts = pointer_to<const std::int32_t>(request.mlps_of_experts),
      .row_indices = pointer_to<std::int32_t>(request.row_indices),
      .places = pointer_to<std::int32_t>(request.places),
      .first_rows = pointer_to<std::int32_t>(request.first_rows),
      .tiles = pointer_to<cuda::MlpTile>(request.tiles),
      .num_experts = narrow<std::int32_t>(request.num_experts),
      .num_mlps = narrow<std::int32_t>(room.mlps),
      .topk = narrow<std::int32_t>(room.topk),
      .most_inputs = narrow<std::int32_t>(room.inputs),
      .kinds = request.kinds,
      .unused = 0};
  device_.launch(plan_, {.threads = cuda::kPlanThreads}, &arguments);
}

}  // namespace moesaic
