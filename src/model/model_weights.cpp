#include "src/model/model_weights.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "src/model/weight_store.h"

namespace moesaic {
namespace {

using Home = WeightStore::Home;

/// Names every weight of the model once: where it comes from, in which form and where it is kept.
class WeightPlanner {
 public:
  WeightPlanner(const ModelConfig& config, const LoadOptions& options, ModelWeights& weights,
                WeightStore& store)
      : config_(config),
        options_(options),
        weights_(weights),
        store_(store),
        format_(weight_format(options.precision)) {}

  void plan() {
    const Checkpoint& checkpoint = *weights_.checkpoint;
    const ModelNames names = find_tensor_names(
        config_, [&](std::string_view name) { return checkpoint.contains(name); });
    weights_.embedding = source(names.embedding);
    vector(weights_.final_norm, names.final_norm);
    matrix(weights_.lm_head, names.lm_head);
    weights_.layers.resize(names.layers.size());
    for (std::size_t l = 0; l < names.layers.size(); ++l) {
      plan_attention(names.layers[l], weights_.layers[l]);
      plan_feed_forward(names.layers[l], weights_.layers[l]);
    }
  }

 private:
  [[nodiscard]] MatrixSource source(const TensorSlice& slice) const {
    return {*weights_.checkpoint, slice};
  }
  void vector(std::span<const float>& target, const TensorSlice& slice) {
    store_.add_vector(Home::node, {source(slice)}, &target);
  }
  void matrix(PackedMatrix& target, const TensorSlice& slice) { dense(target, {source(slice)}); }
  /// Dense weights that the checkpoint keeps in more than bf16 stay exact: they are few and every
  /// token meets them. Experts take the format of the precision.
  void dense(PackedMatrix& target, std::vector<MatrixSource> parts) {
    const Format format = dense_format(parts);
    store_.add_matrix(Home::node, format, std::move(parts), &target);
  }
  [[nodiscard]] Format dense_format(std::span<const MatrixSource> parts) const {
    const bool bf16 = std::ranges::all_of(
        parts, [](const MatrixSource& part) { return part.dtype() == DType::bf16; });
    return bf16 ? format_ : Format::f32;
  }

  void plan_attention(const LayerNames& names, LayerWeights& layer) {
    vector(layer.input_norm, names.input_norm);
    vector(layer.post_attention_norm, names.post_attention_norm);
    dense(layer.qkv, {source(names.q.weight), source(names.k.weight), source(names.v.weight)});
    if (names.q.bias) {
      store_.add_vector(Home::node,
                        {source(*names.q.bias), source(*names.k.bias), source(*names.v.bias)},
                        &layer.qkv_bias);
    }
    matrix(layer.o, names.o.weight);
    if (names.o.bias) vector(layer.o_bias, *names.o.bias);
    if (names.q_norm) vector(layer.q_norm, *names.q_norm);
    if (names.k_norm) vector(layer.k_norm, *names.k_norm);
  }

  void plan_mlp(const MlpNames& names, MlpWeights& mlp) {
    // One product reads gate and up together, so they have one format.
    const std::array sources = {source(names.gate), source(names.up)};
    const Format format = dense_format(sources);
    store_.add_matrix(Home::node, format, {sources[0]}, &mlp.gate);
    store_.add_matrix(Home::node, format, {sources[1]}, &mlp.up);
    matrix(mlp.down, names.down);
  }

  void plan_feed_forward(const LayerNames& names, LayerWeights& layer) {
    if (names.dense) plan_mlp(*names.dense, layer.dense);
    if (names.shared) plan_mlp(*names.shared, layer.shared);
    if (names.shared_gate) f32_matrix(layer.shared_gate, *names.shared_gate);
    if (names.router) f32_matrix(layer.router, *names.router);
    if (names.experts.empty()) return;
    const auto first =
        static_cast<std::size_t>(options_.placement->experts_start_idx(options_.expert_rank));
    layer.experts.resize(
        static_cast<std::size_t>(options_.placement->num_local_experts(options_.expert_rank)));
    for (std::size_t slot = 0; slot < layer.experts.size(); ++slot) {
      const MlpNames& expert = names.experts[first + slot];
      ExpertWeights& target = layer.experts[slot];
      store_.add_matrix(Home::rank, format_, {source(expert.gate)}, &target.gate);
      store_.add_matrix(Home::rank, format_, {source(expert.up)}, &target.up);
      store_.add_matrix(Home::rank, format_, {source(expert.down)}, &target.down);
    }
  }

  /// Choices must not hang on rounding: router and shared gate stay f32 in every precision.
  void f32_matrix(PackedMatrix& target, const TensorSlice& slice) {
    store_.add_matrix(Home::node, Format::f32, {source(slice)}, &target);
  }

  const ModelConfig& config_;
  const LoadOptions& options_;
  ModelWeights& weights_;
  WeightStore& store_;
  Format format_;
};

}  // namespace

WeightBytes packed_weight_bytes(const std::shared_ptr<Checkpoint>& checkpoint,
                                const ModelConfig& config, const LoadOptions& options) {
  ModelWeights weights;
  weights.checkpoint = checkpoint;
  WeightStore store;
  WeightPlanner(config, options, weights, store).plan();
  return {.rank_bytes = store.bytes(Home::rank), .node_bytes = store.bytes(Home::node)};
}

std::unique_ptr<ModelWeights> load_model_weights(std::shared_ptr<Checkpoint> checkpoint,
                                                 const ModelConfig& config,
                                                 const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto weights = std::make_unique<ModelWeights>();
  weights->precision = options.precision;
  weights->checkpoint = std::move(checkpoint);
  WeightStore store;
  WeightPlanner(config, options, *weights, store).plan();
  WeightStore::Memory memory = store.load(*options.node, *options.pool, options.progress);
  weights->node_memory = std::move(memory.node);
  weights->rank_memory = std::move(memory.rank);
  weights->report = {
      .read_bytes = memory.read_bytes,
      .rank_bytes = store.bytes(Home::rank),
      .node_bytes = store.bytes(Home::node),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  return weights;
}

}  // namespace moesaic
