#include "launch/job/gpu_graphs.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {

void require_graph_use(const Options& options) {
  require(options.gpu_graph == GpuGraph::off || options.has_gpu_experts(), ErrorKind::usage,
          "--gpu-graph on is for experts on GPUs: --gpu-experts says which");
}

std::int64_t grouped_experts(const Options& options, std::int64_t experts) noexcept {
  return options.gpu_kernel == GpuKernel::cutlass ? experts : 0;
}

DeviceGraphShape graph_shape(const ModelConfig& config, std::int64_t experts,
                             const Options& options) {
  DeviceGraphShape shape{.expert = {.hidden = config.hidden_size,
                                    .width = 0,
                                    .activations = options.nvfp4_activations,
                                    .grouped_experts = grouped_experts(options, experts)},
                         .topk = config.experts_per_token,
                         .experts = experts};
  for (const LayerConfig& layer : config.layers) {
    const FeedForwardSizes sizes = layer.feed_forward->sizes();
    if (sizes.experts > 0) shape.expert.width = std::max(shape.expert.width, sizes.expert_width);
  }
  return shape;
}

std::int64_t pinned_graph_bytes(const Options& options, const ModelConfig& config) {
  if (options.gpu_graph == GpuGraph::off) return 0;
  return graph_shape(config, config.num_experts, options).pinned_bytes();
}

void tell_graphs(const Runtime& runtime, bool has_experts, bool has_road) {
  std::int64_t any = has_experts ? 1 : 0;
  runtime.world().max({&any, 1});
  if (any == 0) {
    runtime.log().once(LogLevel::warning, "--gpu-graph on: no graphs: no experts are on a GPU");
    return;
  }
  const Communicator& experts = runtime.grid().experts();
  if (experts.size() > 1 && !has_road && experts.has_messages()) {
    runtime.log().once(LogLevel::warning,
                       "--gpu-graph on: no graphs: between nodes experts run as their rows come");
    return;
  }
  runtime.log().once(LogLevel::info, "batches of up to {} rows are planned on GPUs, each one graph",
                     DeviceGraphMemory::kMostInputs);
}

}  // namespace moesaic
