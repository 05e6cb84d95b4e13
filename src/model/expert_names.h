#pragma once

#include <string_view>
#include <vector>

#include "src/model/feed_forward.h"
#include "src/model/model_names.h"

namespace moesaic {

/// down(silu(gate(x)) * up(x)).
struct MlpNames {
  TensorSlice gate;  // [width, hidden]
  TensorSlice up;    // [width, hidden]
  TensorSlice down;  // [hidden, width]
};

struct MlpShape {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
};

/// "BLOCK.gate_proj.weight" and so on.
[[nodiscard]] MlpNames mlp_names(const LayerTensors& tensors, std::string_view block,
                                 const MlpShape& shape);

/// Where a layer's experts are [config.experts]: a tensor each, or fused in 3-D tensors, under
/// several names.
[[nodiscard]] std::vector<MlpNames> expert_names(const LayerTensors& tensors,
                                                 const MoeConfig& config);

/// Where its router is: [experts, hidden].
[[nodiscard]] TensorSlice router_slice(const LayerTensors& tensors, const MoeConfig& config);

}  // namespace moesaic
