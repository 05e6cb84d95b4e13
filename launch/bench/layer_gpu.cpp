#include "launch/bench/layer_gpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/gpu_choice.h"
#include "launch/job/gpu_graphs.h"

namespace moesaic {
namespace {

/// Of --gpu-experts, which names no file here: layers have no numbers.
std::int64_t wanted_experts(const std::string& which, std::int64_t most) {
  if (which == "none") return 0;
  if (which == "all") return most;
  const std::optional<std::int64_t> count = read_number(which);
  require(count && *count >= 0, ErrorKind::usage,
          "--gpu-experts {}: bench layer takes none, all or a number", which);
  require(*count <= most, ErrorKind::usage, "--gpu-experts {}: no layer has more than {} experts",
          which, most);
  return *count;
}

}  // namespace

LayerGpu::LayerGpu(const Runtime& runtime, std::span<const LayerShape> layers)
    : runtime_(&runtime) {
  const std::string& which = runtime.options().gpu_experts;
  const std::int64_t most =
      std::ranges::max(layers, {}, [](const LayerShape& layer) { return layer.experts; }).experts;
  agree(runtime.world(), [&] {
    wanted_ = wanted_experts(which, most);
    require_gpu_options(runtime.options());
    require_gpu_uses(runtime.command());
  });
  has_gpu_.assign(static_cast<std::size_t>(runtime.grid().experts().size()), 0);
  if (!runtime.options().has_gpu_experts()) {
    agree(runtime.world(), [&] { require_graph_use(runtime.options()); });
    tell_unused_nccl(runtime);
    return;
  }
  gpu_ = open_rank_device(runtime, "--gpu-experts " + which);
  agree(runtime.world(), [&] {
    if (gpu_.device == nullptr) return;
    require_activations(gpu_, {.format = Format::nvfp4});
  });
  has_gpu_ = gather_values(runtime.grid().experts(), static_cast<int>(gpu_.device != nullptr));
  if (gpu_.device != nullptr) {
    work_ = make_experts_workspace(runtime, gpu_);
    if (gpu_.is_first_sharer) roofs_.emplace(*gpu_.device, work_->deadline_seconds);
  }
  road_ = std::make_unique<GpuRoad>(runtime, GpuRoad::Rank{gpu_, wanted_ == most, work_.get()});
  if (runtime.options().gpu_graph == GpuGraph::on) {
    tell_graphs(runtime, work_ != nullptr && wanted_ > 0, road_->get() != nullptr);
  }
}

ExpertMask LayerGpu::mask_of(const LayerShape& shape) const {
  return ExpertMask::spread({shape.experts}, std::min(wanted_, shape.experts));
}

std::int64_t LayerGpu::num_experts(const LayerShape& shape) const {
  const ExpertMask mask = mask_of(shape);
  const ExpertPlacement placement(shape.experts, runtime_->grid().experts().size());
  std::int64_t count = 0;
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    const int rank = placement.rank_of(ExpertId{static_cast<std::int32_t>(expert)});
    const bool is_there = has_gpu_[static_cast<std::size_t>(rank)] != 0;
    count += is_there && mask.contains(0, expert) ? 1 : 0;
  }
  return count;
}

void LayerGpu::measure_roofs(const LayerShape& shape, const Layout& layout) {
  if (num_experts(shape) == 0) return;
  if (roofs_) {
    roofs_->measure_reads();
    // Of CUTLASS's instructions there is no kernel of our own.
    if (gpu_.kernels != DeviceKernels::cutlass) roofs_->measure_multiply(kernels_of(layout));
  }
  runtime_->world().barrier();
}

LayerGpu::Roofs LayerGpu::roofs(const Layout& layout) const {
  struct Rates {
    int chip;
    double operations;
    double bytes;
  };
  Rates own{};
  if (gpu_.device != nullptr) own.chip = gpu_.device->info().chip;
  if (roofs_) {
    const auto& measured = roofs_->operations_per_second();
    const auto found = measured.find(kernels_of(layout));
    own.operations =
        found == measured.end() ? std::numeric_limits<double>::infinity() : found->second;
    own.bytes = roofs_->bytes_per_second();
  }
  Roofs all{.isa = "", .operations_per_second = 0, .bytes_per_second = 0};
  for (const Rates& rates : gather_values(runtime_->world(), own)) {
    if (all.isa.empty() && rates.chip != 0) {
      all.isa = fmt::format("sm_{}/{}", rates.chip, kernels_of(layout));
    }
    all.operations_per_second += rates.operations;
    all.bytes_per_second += rates.bytes;
  }
  return all;
}

std::string_view LayerGpu::kernels_of(const Layout& layout) const {
  return kernels_name(gpu_.kernels, gpu_.nvfp4_activations, layout.format);
}

std::string LayerGpu::missing(const LayerShape& shape, const Layout& layout) const {
  if (num_experts(shape) == 0) return "";
  const PackedMatrix gate = {.layout = layout, .rows = shape.intermediate, .depth = shape.hidden};
  const PackedMatrix down = {.layout = layout, .rows = shape.hidden, .depth = shape.intermediate};
  for (const PackedMatrix& matrix : {gate, down}) {
    const std::string text = missing_on_device(matrix);
    if (!text.empty()) return text;
  }
  const bool is_grouped = runtime_->options().gpu_kernel == GpuKernel::cutlass;
  const std::string text = is_grouped ? missing_for_groups(gate) : "";
  return text.empty() ? text : "--gpu-kernel cutlass: " + text;
}

LayerPlace LayerGpu::place(const LayerShape& shape, std::span<std::byte> memory) {
  const std::int64_t on_gpus = num_experts(shape);
  ExpertsAtWork* const at_work = on_gpus > 0 && on_gpus < shape.experts ? &at_work_ : nullptr;
  if (work_ == nullptr) return {.memory = memory, .at_work = at_work};
  const Communicator& experts = runtime_->grid().experts();
  const ExpertPlacement placement(shape.experts, experts.size());
  const ExpertMask mask = mask_of(shape);
  LayerPlace place{.memory = memory, .device = work_.get(), .at_work = at_work};
  for (const ExpertId expert : placement.experts_of(experts.rank())) {
    place.on_device.push_back(mask.contains(0, static_cast<std::int64_t>(expert)));
  }
  if (runtime_->options().gpu_graph == GpuGraph::off) return place;
  graphs_.reset();
  graphs_ = std::make_unique<DeviceGraphMemory>(
      *gpu_.device, DeviceGraphShape{.expert = {.hidden = shape.hidden,
                                                .width = shape.intermediate,
                                                .activations = gpu_.nvfp4_activations,
                                                .grouped_experts = grouped_experts(
                                                    runtime_->options(), shape.experts)},
                                     .topk = shape.topk,
                                     .experts = std::ranges::count(place.on_device, true)});
  work_->graphs = graphs_.get();
  return place;
}

}  // namespace moesaic
