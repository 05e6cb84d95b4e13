#include "launch/job/rank_gpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/memory.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/gpu_graphs.h"
#include "launch/job/gpu_memory.h"
#include "launch/job/memory_check.h"

namespace moesaic {
namespace {

/// What a rank tells of its GPU. Travels as bytes.
struct GpuLine {
  std::array<char, 96> gpu{};      // "GPU 0 (NVIDIA H100, sm_90, mma, 14.2 GiB)"; empty: none
  std::array<char, 192> reason{};  // why it has none, or no experts
  std::int64_t least = 0;          // experts of a layer that are there
  std::int64_t most = 0;
  std::int64_t own = 0;
};

template <std::size_t size>
void copy_line(std::string_view text, std::array<char, size>& out) {
  std::copy_n(text.begin(), std::min(text.size(), size - 1), out.begin());
}

std::string line_text(const GpuLine& line, std::string_view isa) {
  if (line.gpu[0] == '\0') {
    return fmt::format("{} experts a layer on CPU ({}): {}", line.own, isa, line.reason.data());
  }
  const bool is_even = line.least == line.most;
  const std::string on_cpu = is_even ? fmt::format("{}", line.own - line.least) : "the others";
  const std::string_view reason = line.reason.data();
  return fmt::format(
      "{} of {} experts a layer on {}{}{}{}",
      is_even ? fmt::format("{}", line.least) : fmt::format("{} to {}", line.least, line.most),
      line.own, line.gpu.data(),
      line.least == line.own ? "" : fmt::format(", {} on CPU ({})", on_cpu, isa),
      reason.empty() ? "" : ": ", reason);
}

/// What sets the memory that a rank may use.
std::string limit_text(const Options& options, const RankDevice& gpu) {
  return fmt::format(
      "--gpu-memory {}{}", options.gpu_memory,
      gpu.num_sharers > 1 ? fmt::format(", shared by {} ranks", gpu.num_sharers) : "");
}

}  // namespace

RankGpu::RankGpu(const Runtime& runtime, const Model& model)
    : mask_(experts_of_layers(model.config)) {
  const Options& options = runtime.options();
  GpuWish wish;
  agree(runtime.world(), [&] { wish = read_gpu_wish(options, model.config); });
  gpu_ = open_rank_device(runtime, "--gpu-experts " + options.gpu_experts);
  agree(runtime.world(), [&] { settle_activations(model); });
  choose(runtime, model, wish);
  tell(runtime, model);
  if (weight_bytes_ > 0) {
    workspace_ = make_experts_workspace(runtime, gpu_);
    weights_ = std::make_unique<DeviceWeights>(*gpu_.device, workspace_->deadline_seconds);
  }
  if (options.gpu_graph == GpuGraph::on) make_graphs(runtime, model);
  road_ = std::make_unique<GpuRoad>(runtime, GpuRoad::Rank{gpu_, has_all(model), workspace_.get()});
  if (options.gpu_graph == GpuGraph::on) tell_graphs(runtime, graphs_ != nullptr, has_road());
}

void RankGpu::make_graphs(const Runtime& runtime, const Model& model) {
  std::int64_t most = 0;
  for (std::int64_t layer = 0; layer < mask_.num_layers(); ++layer) {
    most = std::max(most, own_experts(model.own, mask_, layer).chosen);
  }
  agree(runtime.world(), [&] {
    if (workspace_ == nullptr) return;
    DeviceGraphShape shape = graph_shape(model.config, most, runtime.options());
    shape.expert.activations = gpu_.nvfp4_activations;
    graphs_ = std::make_unique<DeviceGraphMemory>(*gpu_.device, shape);
    workspace_->graphs = graphs_.get();
  });
}

bool RankGpu::has_all(const Model& model) const {
  for (std::int64_t layer = 0; layer < mask_.num_layers(); ++layer) {
    const OwnExperts own = own_experts(model.own, mask_, layer);
    if (own.chosen < own.all) return false;
  }
  return true;
}

/// Activations are in nvfp4 where experts are. Throws Error{usage} for a GPU that cannot take them.
void RankGpu::settle_activations(const Model& model) {
  bool has_nvfp4 = false;
  model.weights.for_each_expert([&](const PlannedWeight& weight, std::int64_t) {
    const Layout& layout = weight.matrix->layout;
    has_nvfp4 = has_nvfp4 || layout.format == Format::nvfp4;
    if (gpu_.device != nullptr) require_activations(gpu_, layout);
  });
  if (!has_nvfp4) gpu_.nvfp4_activations = Nvfp4Activations::bf16;
}

void RankGpu::choose(const Runtime& runtime, const Model& model, const GpuWish& wish) {
  const Options& options = runtime.options();
  const std::int64_t pass = gpu_pass_bytes(model.config, model.work,
                                           share_ranks(runtime, model.config, model.work), options);
  ExpertSizes sizes;
  std::int64_t available = 0;
  agree(runtime.world(), [&] {
    if (gpu_.device == nullptr) return;
    sizes = expert_sizes(model.config, model.weights, model.own, wish);
    available = gpu_.available_bytes(options);
  });
  std::int64_t fitting =
      gpu_.device == nullptr ? model.config.num_experts : largest_spread(sizes, available - pass);
  fitting = std::ranges::min(gather_values(runtime.world(), fitting));
  agree(runtime.world(), [&] {
    if (gpu_.device == nullptr) return;
    mask_ = choose_experts(wish, sizes, available - pass);
    weight_bytes_ = bytes_of(mask_, sizes);
    if (!wish.mask && weight_bytes_ == 0 && least_bytes(sizes, wish.order) > 0) {
      no_room_ = fmt::format("one of each layer would take {} with rows, {} are available ({})",
                             format_bytes(least_bytes(sizes, wish.order) + pass),
                             format_bytes(available), limit_text(options, gpu_));
    }
    require_gpu_memory({.weights = weight_bytes_, .rows = pass},
                       {.gpu = gpu_.text(),
                        .bytes = available,
                        .source = limit_text(options, gpu_),
                        .most_experts = fitting},
                       options.gpu_experts);
  });
}

void RankGpu::tell(const Runtime& runtime, const Model& model) const {
  GpuLine line{.least = model.config.num_experts};
  copy_line(gpu_.device != nullptr ? no_room_ : gpu_.reason, line.reason);
  for (std::int64_t layer = 0; layer < mask_.num_layers(); ++layer) {
    if (mask_.num_experts(layer) == 0) continue;
    const OwnExperts own = own_experts(model.own, mask_, layer);
    line.own = std::max(line.own, own.all);
    line.least = std::min(line.least, own.chosen);
    line.most = std::max(line.most, own.chosen);
  }
  if (gpu_.device != nullptr) {
    copy_line(gpu_.text(", " + format_bytes(weight_bytes_)), line.gpu);
  }
  const std::vector<GpuLine> lines = gather_values(runtime.world(), line);
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    const bool is_refused = lines[rank].gpu[0] != '\0' && lines[rank].reason[0] != '\0';
    runtime.log().once(is_refused ? LogLevel::warning : LogLevel::info, "rank {}: {}", rank,
                       line_text(lines[rank], isa_name(runtime.compute().isa)));
  }
  const Communicator& node = runtime.grid().node();
  if (node.size() < gpu_.num_visible) {
    runtime.log().once(LogLevel::info, "note: {} of the {} GPUs of this node are not used: {}",
                       gpu_.num_visible - node.size(), gpu_.num_visible, "a rank uses one");
  }
}

}  // namespace moesaic
