#include "launch/job/gpu_memory.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/cuda/mlp_products.h"
#include "launch/job/gpu_graphs.h"
#include "src/moe/device_road.h"

namespace moesaic {

std::string gpu_items_text(const GpuMemory& memory) {
  return fmt::format("experts {}, rows {}", format_bytes(memory.weights),
                     format_bytes(memory.rows));
}

namespace {

void require_kernels(const PlannedWeight& weight, GpuKernel kernel) {
  const auto check = [&](std::string_view option, const std::string& missing) {
    require(missing.empty(), ErrorKind::usage, "{}: weight \"{}\": {}", option, weight.name,
            missing);
  };
  check("--gpu-experts", missing_on_device(*weight.matrix));
  if (kernel == GpuKernel::cutlass) {
    check("--gpu-kernel cutlass", missing_for_groups(*weight.matrix));
  }
}

}  // namespace

ExpertSizes expert_sizes(const ModelConfig& config, const ModelLoader& weights,
                         const HeldExperts& own, const GpuWish& wish) {
  ExpertSizes sizes{.own = own, .bytes = {}};
  for (const std::int64_t count : experts_of_layers(config)) {
    sizes.bytes.emplace_back(static_cast<std::size_t>(count), 0);
  }
  std::vector<const PlannedWeight*> first(sizes.bytes.size());  // of each layer
  weights.for_each_expert([&](const PlannedWeight& weight, std::int64_t bytes) {
    const auto layer = static_cast<std::size_t>(weight.layer);
    sizes.bytes[layer][static_cast<std::size_t>(weight.expert)] += bytes;
    if (wish.mask && !wish.mask->contains(weight.layer, weight.expert)) return;
    require_kernels(weight, wish.kernel);
    if (first[layer] == nullptr) first[layer] = &weight;
    const Layout& layout = first[layer]->matrix->layout;
    require(layout == weight.matrix->layout, ErrorKind::usage,
            "--gpu-experts: weights \"{}\" and \"{}\" are {} and {}: those of a layer that are on "
            "a GPU are in one format",
            first[layer]->name, weight.name, layout_name(layout),
            layout_name(weight.matrix->layout));
  });
  return sizes;
}

std::int64_t gpu_pass_bytes(const ModelConfig& config, const Workload& work,
                            const RankSharing& sharing, const Options& options) {
  const RoadRows rows = road_rows(config, work, sharing);
  const bool may_stay = sharing.sharers == 1 || options.transport == Transport::nccl;
  std::int64_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    const FeedForwardSizes sizes = layer.feed_forward->sizes();
    if (sizes.experts == 0) continue;
    const DevicePassShape expert = {.hidden = config.hidden_size,
                                    .width = sizes.expert_width,
                                    .activations = options.nvfp4_activations,
                                    .grouped_experts = grouped_experts(options, sizes.experts)};
    bytes = std::max(bytes, device_pass_bytes(rows.outputs, expert));
    if (may_stay) bytes = std::max(bytes, device_road_bytes(rows, expert));
  }
  if (options.gpu_graph == GpuGraph::off) return bytes;
  return bytes + graph_shape(config, config.num_experts, options).device_bytes();
}

void require_gpu_memory(const GpuMemory& need, const GpuLimit& limit, std::string_view wanted) {
  if (need.weights == 0 || need.total() <= limit.bytes) return;
  const std::string what =
      fmt::format("not enough memory on {}: --gpu-experts {} takes {} there ({})", limit.gpu,
                  wanted, format_bytes(need.total()), gpu_items_text(need));
  const std::string there =
      fmt::format("{} are available ({})", format_bytes(limit.bytes), limit.source);
  require(need.rows < limit.bytes, ErrorKind::resource,
          "{}, but {}, which rows alone exceed: a smaller --batch-size helps", what, there);
  fail(ErrorKind::resource, "{}, most of it for {}, but {}; at most --gpu-experts {} fits", what,
       need.weights >= need.rows ? "experts" : "rows (a smaller --batch-size helps)", there,
       limit.most_experts);
}

}  // namespace moesaic
