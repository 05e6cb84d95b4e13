#include "src/moe/device_graphs.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::int64_t kPartAlignment = 16;
constexpr double kListSeconds = 60;

PlanRoom room_of(const DeviceGraphShape& most) {
  return {.inputs = DeviceGraphMemory::kMostInputs, .topk = most.topk, .mlps = most.experts};
}

/// Of kernels of any size: portable ones have at most one that is not full for each expert, those
/// of tensor cores two (most_tiles_of_kind()).
std::int64_t tile_bytes(const DeviceGraphShape& most) {
  const std::int64_t tiles = 2 * most.experts + room_of(most).rows() / cuda::kPortableRows + 1;
  return tiles * static_cast<std::int64_t>(sizeof(cuda::MlpTile));
}

std::int64_t input_bytes(const DeviceGraphShape& most) {
  return DeviceGraphMemory::kMostInputs * (2 * most.expert.hidden + 8 * most.topk) +
         4 * kPartAlignment;
}

std::int64_t sum_bytes(const DeviceGraphShape& most) {
  return DeviceGraphMemory::kMostInputs * most.expert.hidden * 4;
}

}  // namespace

std::int64_t DeviceGraphShape::device_bytes() const {
  const std::int64_t rows = room_of(*this).rows();
  return input_bytes(*this) + rows * (8 + 2 * expert.width + 4 * expert.hidden) +
         (experts + 1) * 4 + tile_bytes(*this) + sum_bytes(*this) +
         expert.rounded_bytes(DeviceGraphMemory::kMostInputs, rows);
}

std::int64_t DeviceGraphShape::pinned_bytes() const {
  return input_bytes(*this) + sum_bytes(*this) +
         with_reserve(room_of(*this).rows() * expert.hidden * 4);
}

std::int64_t DeviceGraphMemory::budget_of(std::int64_t inputs) noexcept {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(inputs)));
}

DeviceGraphMemory::DeviceGraphMemory(Device& gpu, const DeviceGraphShape& most)
    : device(gpu), shape(most), plan(gpu), moves(gpu) {
  require(most.experts <= cuda::kMostPlannedMlps, ErrorKind::usage,
          "--gpu-graph on: a GPU plans for up to {} experts of a layer, not for {}",
          cuda::kMostPlannedMlps, most.experts);
  const std::int64_t rows = room_of(most).rows();
  host_inputs = gpu.allocate_pinned(input_bytes(most));
  inputs = gpu.allocate(input_bytes(most));
  row_indices = gpu.allocate(rows * 4);
  places = gpu.allocate(rows * 4);
  first_rows = gpu.allocate((most.experts + 1) * 4);
  tiles = gpu.allocate(tile_bytes(most));
  inner = gpu.allocate(rows * most.expert.width * 2);
  rounded = gpu.allocate(most.expert.rounded_bytes(kMostInputs, rows));
  results = gpu.allocate(rows * most.expert.hidden * 4);
  sums = gpu.allocate(sum_bytes(most));
  host_sums = gpu.allocate_pinned(sum_bytes(most));
}

DeviceGraphMemory::Inputs DeviceGraphMemory::inputs_of(std::int64_t budget,
                                                       std::int64_t topk) const noexcept {
  Inputs at;
  at.count = round_up(budget * shape.expert.hidden * 2, kPartAlignment);
  at.experts = at.count + kPartAlignment;
  at.weights = round_up(at.experts + budget * topk * 4, kPartAlignment);
  at.end = at.weights + budget * topk * 4;
  return at;
}

ExpertGraphs::ExpertGraphs(DeviceGraphMemory& memory, DeviceMlps& mlps,
                           std::span<const std::int32_t> mlps_of_experts)
    : memory_(memory),
      mlps_(mlps),
      num_experts_(std::ssize(mlps_of_experts)),
      num_mlps_(std::ranges::count_if(mlps_of_experts, [](auto mlp) { return mlp >= 0; })) {
  Device& device = memory.device;
  const PinnedBuffer host = device.allocate_pinned(num_experts_ * 4);
  std::ranges::copy(mlps_of_experts, reinterpret_cast<std::int32_t*>(host.data()));
  mlps_of_experts_ = device.allocate(host.bytes());
  device.upload(mlps_of_experts_.address(), host.data(), host.bytes());
  device.mark();
  device.wait_for_mark(kListSeconds);
}

DeviceGraph& ExpertGraphs::graph_of(const Batch& batch) {
  const std::int64_t budget = DeviceGraphMemory::budget_of(batch.inputs);
  const auto key = std::make_tuple(budget, batch.topk, batch.results, batch.has_rows);
  auto graph = graphs_.find(key);
  if (graph == graphs_.end()) {
    graph = graphs_.emplace(key, memory_.device.capture([&] { ask(budget, batch); })).first;
  }
  return graph->second;
}

void ExpertGraphs::prepare(const Batch& batch) {
  (void)graph_of(batch);
}

void ExpertGraphs::launch(const Batch& batch) {
  memory_.device.launch(graph_of(batch));
  ++memory_.num_batches;
}

void ExpertGraphs::ask(std::int64_t budget, const Batch& batch) {
  Device& device = memory_.device;
  const DeviceGraphMemory::Inputs at = memory_.inputs_of(budget, batch.topk);
  const auto input = [&](std::int64_t offset) {
    return memory_.inputs.address() + static_cast<CudaAddress>(offset);
  };
  const PlanRoom room = {.inputs = budget, .topk = batch.topk, .mlps = num_mlps_};
  const cuda::TileKinds kinds = tile_kinds(mlps_.tile_sizes(), room);
  const std::int64_t first = batch.has_rows ? at.count : 0;
  device.upload(input(first), memory_.host_inputs.data() + first, at.end - first);
  memory_.plan.make({.num_inputs = input(at.count),
                     .experts = input(at.experts),
                     .mlps_of_experts = mlps_of_experts_.address(),
                     .num_experts = num_experts_,
                     .row_indices = memory_.row_indices.address(),
                     .places = memory_.places.address(),
                     .first_rows = memory_.first_rows.address(),
                     .tiles = memory_.tiles.address(),
                     .room = room,
                     .kinds = kinds});
  const CudaAddress num_rows =
      memory_.first_rows.address() + static_cast<CudaAddress>(num_mlps_ * 4);
  mlps_.start({.pass = {.x = input(0),
                        .num_inputs = budget,
                        .row_indices = memory_.row_indices.address(),
                        .num_rows = room.rows(),
                        .y = memory_.results.address()},
               .kinds = kinds,
               .tiles = memory_.tiles.address(),
               .num_inputs = input(at.count),
               .num_rows = num_rows,
               .inner = memory_.inner.address(),
               .rounded = memory_.rounded.address()});
  if (batch.results == GraphResults::rows) return;
  memory_.moves.combine({.results = memory_.results.address(),
                         .places = memory_.places.address(),
                         .weights = input(at.weights),
                         .y = memory_.sums.address(),
                         .tokens = budget,
                         .topk = batch.topk,
                         .hidden = mlps_.hidden()});
  device.download(memory_.host_sums.data(), memory_.sums.address(), budget * mlps_.hidden() * 4);
}

}  // namespace moesaic
