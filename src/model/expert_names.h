#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/model/feed_forward.h"
#include "src/model/model_names.h"

namespace moesaic {

/// down(gating(gate(x), up(x))).
struct MlpNames {
  TensorSlice gate;                   // [width, hidden]
  TensorSlice up;                     // [width, hidden]
  TensorSlice down;                   // [hidden, width]
  std::vector<TensorSlice> biases{};  // of gate, up and down, vectors; empty: none
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

/// The modules of one expert that can have adapters, as both versions of transformers name them in
/// this family, whatever names the checkpoint has.
struct ExpertModules {
  std::string gate;
  std::string up;
  std::string down;
  std::string gate_up4{};  ///< AdapterSite::fused4 of gate and up, and of down
  std::string down4{};
  std::string all5;  ///< AdapterSite::fused5
};
[[nodiscard]] ExpertModules expert_modules(MoeNames names, std::int64_t expert);

/// Where its router is: [experts, hidden].
[[nodiscard]] TensorSlice router_slice(const LayerTensors& tensors, const MoeConfig& config);
/// And the bias of its logits: [experts].
[[nodiscard]] TensorSlice router_bias_slice(const LayerTensors& tensors, const MoeConfig& config);
/// Where the bias of its choices is: [experts].
[[nodiscard]] TensorSlice choice_bias_slice(const LayerTensors& tensors, const MoeConfig& config);

[[nodiscard]] MlpNames shared_expert_names(const LayerTensors& tensors, const MoeConfig& config);
/// The path of its modules in transformers: "mlp.shared_expert.".
[[nodiscard]] std::string_view shared_expert_module(MoeNames names);

}  // namespace moesaic
