#include "src/checkpoint/tensor_names.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "src/checkpoint/companion_names.h"

namespace moesaic {
namespace {

/// The names of a model's weights below one layer's MoE block. "{}" stands for the expert.
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

constexpr std::array<std::string_view, 4> kRouterNames = {
    "mlp.gate.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.router.layer.weight",
    "block_sparse_moe.router.weight"};

/// What save_pretrained writes for a family: indices into the tables above.
struct UsualNames {
  std::size_t experts;
  std::size_t router;
};

UsualNames usual_names(ModelFamily family) {
  switch (family) {
    case ModelFamily::mixtral:
      return {1, 1};
    case ModelFamily::granitemoe:
      return {2, 2};
    default:
      return {0, 0};
  }
}

TensorSlice matrix(std::string tensor, std::int64_t rows, std::int64_t cols) {
  return {std::move(tensor), {rows, cols}, 0, rows, cols};
}

TensorSlice vector(std::string tensor, std::int64_t size) {
  return {std::move(tensor), {size}, 0, 1, size};
}

std::string expert_name(const std::string& layer, std::string_view pattern, std::int64_t expert) {
  return layer + fmt::format(fmt::runtime(pattern), expert);
}

/// Finds the names of one checkpoint.
class NameFinder {
 public:
  NameFinder(const ModelConfig& config, const TensorExists& exists)
      : config_(config), exists_(exists), root_(find_root()) {}

  [[nodiscard]] ModelNames find() const {
    ModelNames names;
    names.embedding =
        matrix(root_ + "embed_tokens.weight", config_.vocab_size, config_.hidden_size);
    names.final_norm = vector(root_ + "norm.weight", config_.hidden_size);
    names.lm_head = names.embedding;
    if (!config_.tie_word_embeddings) {
      names.lm_head.tensor = first_of({"lm_head.weight", "language_model.lm_head.weight"});
    }
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
      names.layers.push_back(find_layer(layer));
    }
    return names;
  }

 private:
  /// The first of the names that is there, or the first of all.
  [[nodiscard]] std::string first_of(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      if (is_stored(name, exists_)) return std::string(name);
    }
    return std::string(*names.begin());
  }

  /// What stands before "layers.0": a model without its head is saved without "model.".
  [[nodiscard]] std::string find_root() const {
    for (const std::string root :
         {"model.", "model.language_model.", "language_model.model.", ""}) {
      if (exists_(root + "embed_tokens.weight")) return root;
    }
    return "model.";
  }

  [[nodiscard]] LinearNames linear(const std::string& name, std::int64_t rows, std::int64_t cols,
                                   bool bias) const {
    LinearNames names{matrix(name + ".weight", rows, cols), {}};
    if (bias) names.bias = vector(name + ".bias", rows);
    return names;
  }

  [[nodiscard]] MlpNames mlp(const std::string& name, std::int64_t intermediate) const {
    const std::int64_t hidden = config_.hidden_size;
    return {matrix(name + ".gate_proj.weight", intermediate, hidden),
            matrix(name + ".up_proj.weight", intermediate, hidden),
            matrix(name + ".down_proj.weight", hidden, intermediate)};
  }

  [[nodiscard]] LayerNames find_layer(std::int64_t index) const {
    const std::string layer = fmt::format("{}layers.{}.", root_, index);
    LayerNames names;
    names.input_norm = vector(layer + "input_layernorm.weight", config_.hidden_size);
    names.post_attention_norm =
        vector(layer + "post_attention_layernorm.weight", config_.hidden_size);
    add_attention(layer + "self_attn.", names);
    if (config_.is_moe[static_cast<std::size_t>(index)]) {
      add_moe(layer, names);
    } else {
      names.dense = mlp(layer + "mlp", config_.dense_intermediate);
    }
    return names;
  }

  void add_attention(const std::string& block, LayerNames& names) const {
    const std::int64_t hidden = config_.hidden_size;
    names.q = linear(block + "q_proj", config_.q_width(), hidden, config_.qkv_bias);
    names.k = linear(block + "k_proj", config_.kv_width(), hidden, config_.qkv_bias);
    names.v = linear(block + "v_proj", config_.kv_width(), hidden, config_.qkv_bias);
    names.o = linear(block + "o_proj", hidden, config_.q_width(), config_.o_bias);
    if (config_.qk_norm == QkNorm::none) return;
    const bool whole = config_.qk_norm == QkNorm::whole;
    names.q_norm = vector(block + "q_norm.weight", whole ? config_.q_width() : config_.head_dim);
    names.k_norm = vector(block + "k_norm.weight", whole ? config_.kv_width() : config_.head_dim);
  }

  void add_moe(const std::string& layer, LayerNames& names) const {
    names.router =
        matrix(layer + std::string(find_router(layer)), config_.num_experts, config_.hidden_size);
    const ExpertPattern& pattern = find_pattern(layer);
    for (std::int64_t expert = 0; expert < config_.num_experts; ++expert) {
      names.experts.push_back(pattern.fused ? fused_expert(layer, pattern, expert)
                                            : single_expert(layer, pattern, expert));
    }
    if (config_.shared_intermediate == 0) return;
    names.shared = mlp(layer + "mlp.shared_expert", config_.shared_intermediate);
    names.shared_gate = matrix(layer + "mlp.shared_expert_gate.weight", 1, config_.hidden_size);
  }

  [[nodiscard]] std::string_view find_router(const std::string& layer) const {
    for (const std::string_view name : kRouterNames) {
      if (is_stored(layer + std::string(name), exists_)) return name;
    }
    return kRouterNames[usual_names(config_.family).router];
  }

  /// A pattern counts as there if any of its tensors is, so that a missing one is named by it.
  [[nodiscard]] const ExpertPattern& find_pattern(const std::string& layer) const {
    for (const ExpertPattern& pattern : kExpertPatterns) {
      for (const std::string_view name : {pattern.gate, pattern.down}) {
        if (is_stored(expert_name(layer, name, 0), exists_)) return pattern;
      }
    }
    return kExpertPatterns[usual_names(config_.family).experts];
  }

  [[nodiscard]] MlpNames single_expert(const std::string& layer, const ExpertPattern& pattern,
                                       std::int64_t expert) const {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.moe_intermediate;
    return {matrix(expert_name(layer, pattern.gate, expert), width, hidden),
            matrix(expert_name(layer, pattern.up, expert), width, hidden),
            matrix(expert_name(layer, pattern.down, expert), hidden, width)};
  }

  /// gate_up is [E, 2I, H]; down is [E, H, I]. Gate comes first, but in the blocks of gpt-oss
  /// (mxfp4) rows of gate and up take turns.
  [[nodiscard]] MlpNames fused_expert(const std::string& layer, const ExpertPattern& pattern,
                                      std::int64_t expert) const {
    const std::int64_t experts = config_.num_experts;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.moe_intermediate;
    const std::vector<std::int64_t> gate_up_shape = {experts, 2 * width, hidden};
    const std::string gate_up = layer + std::string(pattern.gate);
    const std::int64_t first = expert * 2 * width;
    const bool take_turns = exists_(companion_names(gate_up, "blocks").front());
    const std::int64_t step = take_turns ? 2 : 1;
    const std::int64_t first_up = first + (take_turns ? 1 : width);
    return {{gate_up, gate_up_shape, first, width, hidden, step},
            {gate_up, gate_up_shape, first_up, width, hidden, step},
            {layer + std::string(pattern.down),
             {experts, hidden, width},
             expert * hidden,
             hidden,
             width,
             1}};
  }

  const ModelConfig& config_;
  const TensorExists& exists_;
  std::string root_;
};

using SliceCall = std::function<void(const TensorSlice&, bool)>;

void for_each_in_mlp(const MlpNames& mlp, bool expert, const SliceCall& call) {
  call(mlp.gate, expert);
  call(mlp.up, expert);
  call(mlp.down, expert);
}

void for_each_in_layer(const LayerNames& layer, const SliceCall& call) {
  call(layer.input_norm, false);
  call(layer.post_attention_norm, false);
  for (const LinearNames* linear : {&layer.q, &layer.k, &layer.v, &layer.o}) {
    call(linear->weight, false);
    if (linear->bias) call(*linear->bias, false);
  }
  for (const auto* optional : {&layer.q_norm, &layer.k_norm, &layer.router, &layer.shared_gate}) {
    if (*optional) call(**optional, false);
  }
  for (const MlpNames& expert : layer.experts) for_each_in_mlp(expert, true, call);
  for (const auto* optional : {&layer.dense, &layer.shared}) {
    if (*optional) for_each_in_mlp(**optional, false, call);
  }
}

}  // namespace

ModelNames find_tensor_names(const ModelConfig& config, const TensorExists& exists) {
  return NameFinder(config, exists).find();
}

void for_each_slice(const ModelNames& names, const SliceCall& call) {
  call(names.embedding, false);
  for (const LayerNames& layer : names.layers) for_each_in_layer(layer, call);
  call(names.final_norm, false);
  if (names.lm_head.tensor != names.embedding.tensor) call(names.lm_head, false);
}

}  // namespace moesaic
