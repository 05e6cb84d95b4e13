#pragma once

#include "launch/job/runtime.h"
#include "src/model/model_config.h"
#include "src/moe/device_graphs.h"

namespace moesaic {

/// Throws Error{usage} if --gpu-graph on has no experts on GPUs.
void require_graph_use(const Options& options);

/// DevicePassShape::grouped_experts of a GPU with so many of a layer.
[[nodiscard]] std::int64_t grouped_experts(const Options& options, std::int64_t experts) noexcept;

/// What batches of a model's largest layer need, of which a GPU has so many experts at most.
[[nodiscard]] DeviceGraphShape graph_shape(const ModelConfig& config, std::int64_t experts,
                                           const Options& options);
/// Page-locked memory of a host for it; 0 without --gpu-graph on.
[[nodiscard]] std::int64_t pinned_graph_bytes(const Options& options, const ModelConfig& config);

/// Tells where batches go through graphs, and where not. `has_experts`: on this rank's GPU.
/// Collective.
void tell_graphs(const Runtime& runtime, bool has_experts, bool has_road);

}  // namespace moesaic
