#include "src/model/expert_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "src/checkpoint/companion_names.h"

namespace moesaic {
namespace {

/// The names of the experts of one layer's MoE block. "{}" stands for the expert.
struct ExpertPattern {
  bool fused;  ///< 3-D tensors of all experts, gate and up in one
  std::string_view gate;
  std::string_view up;
  std::string_view down;
};

constexpr std::array<ExpertPattern, 8> kExpertPatterns = {{
    {false, "mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight",
     "mlp.experts.{}.down_proj.weight"},
    {false, "block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight",
     "block_sparse_moe.experts.{}.w2.weight"},
    {true, "block_sparse_moe.input_linear.weight", "", "block_sparse_moe.output_linear.weight"},
    {true, "mlp.experts.gate_up_proj", "", "mlp.experts.down_proj"},
    {true, "block_sparse_moe.experts.gate_up_proj", "", "block_sparse_moe.experts.down_proj"},
    {false, "block_sparse_moe.experts.{}.gate_proj.weight",
     "block_sparse_moe.experts.{}.up_proj.weight", "block_sparse_moe.experts.{}.down_proj.weight"},
    {false, "mlp.experts.{}.w1.weight", "mlp.experts.{}.w3.weight", "mlp.experts.{}.w2.weight"},
    {false, "mlp.experts.gate_proj.{}.weight", "mlp.experts.up_proj.{}.weight",
     "mlp.experts.down_proj.{}.weight"},
}};

constexpr std::array<std::string_view, 6> kRouterNames = {"mlp.gate.weight",
                                                          "block_sparse_moe.gate.weight",
                                                          "block_sparse_moe.router.layer.weight",
                                                          "block_sparse_moe.router.weight",
                                                          "mlp.router.gate.weight",
                                                          "mlp.router.weight"};

constexpr std::array<std::string_view, 3> kSharedBlocks = {"mlp.shared_expert",
                                                           "mlp.shared_experts", "mlp.shared_mlp"};

/// What is added to the scores that choices are made by: [experts], of ERNIE [1, experts].
constexpr std::array<std::string_view, 6> kChoiceBiases = {
    "mlp.gate.e_score_correction_bias",
    "block_sparse_moe.e_score_correction_bias",
    "mlp.expert_bias",
    "mlp.moe_statics.e_score_correction_bias",
    "mlp.e_score_correction_bias",
    "mlp.gate.moe_statics.e_score_correction_bias"};

/// What save_pretrained writes; empty: what no model with these names has.
struct UsualNames {
  std::size_t experts;  ///< among kExpertPatterns
  std::string_view router;
  std::string_view shared{};
  std::string_view choice_bias{};
};

UsualNames usual_names(MoeNames names) {
  switch (names) {
    case MoeNames::mixtral:
      return {.experts = 1,
              .router = "block_sparse_moe.gate.weight",
              .choice_bias = "block_sparse_moe.e_score_correction_bias"};
    case MoeNames::granite:
      return {.experts = 2, .router = "block_sparse_moe.router.layer.weight"};
    case MoeNames::deepseek:
      return {.experts = 0,
              .router = "mlp.gate.weight",
              .shared = "mlp.shared_experts",
              .choice_bias = "mlp.gate.e_score_correction_bias"};
    case MoeNames::hunyuan:
      return {.experts = 0,
              .router = "mlp.router.gate.weight",
              .shared = "mlp.shared_mlp",
              .choice_bias = "mlp.expert_bias"};
    case MoeNames::ernie:
      return {.experts = 0,
              .router = "mlp.gate.weight",
              .shared = "mlp.shared_experts",
              .choice_bias = "mlp.moe_statics.e_score_correction_bias"};
    case MoeNames::gpt_oss:
      return {.experts = 3, .router = "mlp.router.weight"};
    case MoeNames::qwen:
      break;
  }
  return {.experts = 0, .router = "mlp.gate.weight", .shared = "mlp.shared_expert"};
}

/// The first of the names for which exists(name), or `usual`.
template <typename Exists>
std::string_view first_of(std::span<const std::string_view> names, std::string_view usual,
                          const Exists& exists) {
  const auto found = std::ranges::find_if(names, exists);
  return found == names.end() ? usual : *found;
}

std::string expert_name(std::string_view pattern, std::int64_t expert) {
  return fmt::format(fmt::runtime(pattern), expert);
}

/// "...gate_proj.bias" beside "...gate_proj.weight".
std::string bias_beside(std::string_view matrix) {
  return fmt::format("{}bias", matrix.substr(0, matrix.rfind('.') + 1));
}

/// A pattern counts as there if any of its tensors is, so that a missing one is named by it.
const ExpertPattern& find_pattern(const LayerTensors& tensors, const MoeConfig& config) {
  for (const ExpertPattern& pattern : kExpertPatterns) {
    for (const std::string_view name : {pattern.gate, pattern.down}) {
      if (tensors.has_matrix(expert_name(name, 0))) return pattern;
    }
  }
  return kExpertPatterns[usual_names(config.usual_names).experts];
}

MlpNames single_expert(const LayerTensors& tensors, const ExpertPattern& pattern,
                       const MoeConfig& config, std::int64_t expert) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.expert_width;
  const auto name = [&](std::string_view part) { return tensors.name(expert_name(part, expert)); };
  MlpNames names{matrix_slice(name(pattern.gate), width, hidden),
                 matrix_slice(name(pattern.up), width, hidden),
                 matrix_slice(name(pattern.down), hidden, width)};
  if (!config.expert_bias) return names;
  for (const TensorSlice* const matrix : {&names.gate, &names.up, &names.down}) {
    names.biases.push_back(vector_slice(bias_beside(matrix->tensor), matrix->rows));
  }
  return names;
}

/// Where rows of up begin behind those of gate, and how far one of either is from the next.
struct GateUpRows {
  std::int64_t first_up;
  std::int64_t step;
};

GateUpRows gate_up_rows(bool take_turns, std::int64_t width) {
  return take_turns ? GateUpRows{1, 2} : GateUpRows{width, 1};
}

std::vector<TensorSlice> fused_biases(const LayerTensors& tensors, const ExpertPattern& pattern,
                                      const MoeConfig& config, std::int64_t expert) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.expert_width;
  const std::string gate_up = tensors.name(pattern.gate) + "_bias";
  const std::vector<std::int64_t> gate_up_shape = {config.experts, 2 * width};
  const std::int64_t first = expert * 2 * width;
  const GateUpRows rows = gate_up_rows(config.takes_turns, width);
  return {
      {gate_up, gate_up_shape, first, width, 1, rows.step},
      {gate_up, gate_up_shape, first + rows.first_up, width, 1, rows.step},
      {tensors.name(pattern.down) + "_bias", {config.experts, hidden}, expert * hidden, hidden, 1}};
}

/// gate_up is [E, H, 2I]; down is [E, I, H].
MlpNames transposed_expert(const LayerTensors& tensors, const ExpertPattern& pattern,
                           const MoeConfig& config, std::int64_t expert) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.expert_width;
  const GateUpRows rows = gate_up_rows(config.takes_turns, width);
  TensorSlice gate{.tensor = tensors.name(pattern.gate),
                   .shape = {config.experts, hidden, 2 * width},
                   .first_row = expert * hidden,
                   .rows = width,
                   .cols = hidden,
                   .row_step = rows.step,
                   .is_transposed = true};
  TensorSlice up = gate;
  up.first_column = rows.first_up;
  return {std::move(gate),
          std::move(up),
          {.tensor = tensors.name(pattern.down),
           .shape = {config.experts, width, hidden},
           .first_row = expert * width,
           .rows = hidden,
           .cols = width,
           .is_transposed = true}};
}

/// Those of gpt-oss (mxfp4).
bool has_blocks(const LayerTensors& tensors, const ExpertPattern& pattern) {
  return tensors.has_tensor(companion_names(tensors.name(pattern.gate), "blocks").front());
}

/// gate_up is [E, 2I, H]; down is [E, H, I]. In blocks rows of gate and up take turns.
MlpNames stacked_expert(const LayerTensors& tensors, const ExpertPattern& pattern,
                        const MoeConfig& config, std::int64_t expert) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t width = config.expert_width;
  const std::vector<std::int64_t> gate_up_shape = {config.experts, 2 * width, hidden};
  const std::string gate_up = tensors.name(pattern.gate);
  const std::int64_t first = expert * 2 * width;
  const GateUpRows rows = gate_up_rows(config.takes_turns || has_blocks(tensors, pattern), width);
  MlpNames names{{gate_up, gate_up_shape, first, width, hidden, rows.step},
                 {gate_up, gate_up_shape, first + rows.first_up, width, hidden, rows.step},
                 {tensors.name(pattern.down),
                  {config.experts, hidden, width},
                  expert * hidden,
                  hidden,
                  width,
                  1}};
  for (TensorSlice* const slice : {&names.gate, &names.up, &names.down}) {
    slice->is_across_if_plain = config.lies_across;
  }
  return names;
}

MlpNames fused_expert(const LayerTensors& tensors, const ExpertPattern& pattern,
                      const MoeConfig& config, std::int64_t expert) {
  const bool lies_across = config.lies_across && !has_blocks(tensors, pattern);
  MlpNames names = lies_across ? transposed_expert(tensors, pattern, config, expert)
                               : stacked_expert(tensors, pattern, config, expert);
  if (config.expert_bias) names.biases = fused_biases(tensors, pattern, config, expert);
  return names;
}

}  // namespace

MlpNames mlp_names(const LayerTensors& tensors, std::string_view block, const MlpShape& shape) {
  const auto part = [&](std::string_view name, std::int64_t rows, std::int64_t cols) {
    return tensors.matrix(fmt::format("{}.{}", block, name), rows, cols);
  };
  return {part("gate_proj", shape.width, shape.hidden), part("up_proj", shape.width, shape.hidden),
          part("down_proj", shape.hidden, shape.width)};
}

std::vector<MlpNames> expert_names(const LayerTensors& tensors, const MoeConfig& config) {
  const ExpertPattern& pattern = find_pattern(tensors, config);
  std::vector<MlpNames> experts;
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    experts.push_back(pattern.fused ? fused_expert(tensors, pattern, config, expert)
                                    : single_expert(tensors, pattern, config, expert));
  }
  return experts;
}

ExpertModules expert_modules(MoeNames names, std::int64_t expert) {
  const std::string single = fmt::format("experts.{}.", expert);
  switch (names) {
    case MoeNames::mixtral: {
      const std::string path = "block_sparse_moe." + single;
      return {.gate = path + "w1", .up = path + "w3", .down = path + "w2", .all5 = "mlp.experts"};
    }
    case MoeNames::granite: {
      const std::string path = "block_sparse_moe." + single;
      return {.gate = path + "gate_proj",
              .up = path + "up_proj",
              .down = path + "down_proj",
              .gate_up4 = "block_sparse_moe.input_linear",
              .down4 = "block_sparse_moe.output_linear",
              .all5 = "block_sparse_moe.experts"};
    }
    case MoeNames::qwen:
    case MoeNames::deepseek:
    case MoeNames::hunyuan:
    case MoeNames::ernie:
    case MoeNames::gpt_oss:
      break;
  }
  const std::string path = "mlp." + single;
  return {.gate = path + "gate_proj",
          .up = path + "up_proj",
          .down = path + "down_proj",
          .all5 = "mlp.experts"};
}

TensorSlice router_slice(const LayerTensors& tensors, const MoeConfig& config) {
  const std::string_view name =
      first_of(kRouterNames, usual_names(config.usual_names).router,
               [&](std::string_view router) { return tensors.has_matrix(router); });
  return matrix_slice(tensors.name(name), config.experts, config.hidden);
}

TensorSlice choice_bias_slice(const LayerTensors& tensors, const MoeConfig& config) {
  const std::string_view name =
      first_of(kChoiceBiases, usual_names(config.usual_names).choice_bias,
               [&](std::string_view bias) { return tensors.has_tensor(tensors.name(bias)); });
  TensorSlice slice = vector_slice(tensors.name(name), config.experts);
  if (name.find("moe_statics") != std::string_view::npos) slice.shape = {1, config.experts};
  return slice;
}

MlpNames shared_expert_names(const LayerTensors& tensors, const MoeConfig& config) {
  const std::string_view block =
      first_of(kSharedBlocks, usual_names(config.usual_names).shared, [&](std::string_view name) {
        return tensors.has_matrix(fmt::format("{}.gate_proj.weight", name));
      });
  return mlp_names(tensors, block, {config.hidden, config.shared_width});
}

std::string_view shared_expert_module(MoeNames names) {
  return names == MoeNames::qwen ? "mlp.shared_expert." : "mlp.shared_experts.";
}

TensorSlice router_bias_slice(const LayerTensors& tensors, const MoeConfig& config) {
  return vector_slice(bias_beside(router_slice(tensors, config).tensor), config.experts);
}

}  // namespace moesaic
