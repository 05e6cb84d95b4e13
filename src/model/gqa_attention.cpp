#include "src/model/gqa_attention.h"

#include <algorithm>
#include <vector>

#include "src/model/attention_run.h"
#include "src/model/gqa_gradient.h"
#include "src/model/gqa_heads.h"
#include "src/model/rotary_rows.h"

namespace moesaic {
namespace {

class GqaAttention : public TokenMixer {
 public:
  GqaAttention(const GqaConfig& config, LayerContext& context);

  void begin(const Batch& batch) override;
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;
  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    if (config_.gated) return TokenMixer::make_stash();
    return std::make_unique<GqaStash>(config_);
  }
  void backward(const MixerLayer& layer, const Batch& batch, Stash& stash,
                const PartBackward& part) override;

 private:
  /// Queries, keys and values of a row; gates stand before them.
  [[nodiscard]] float* queries_of(std::int64_t row) const {
    return context_.projected.data() + row * config_.projected_width() + config_.gate_width();
  }
  /// From the queries and gates of each head to all gates, then all queries.
  void part_gates(std::int64_t row, int worker) const;
  void apply_gates(std::int64_t row) const;
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  /// Attention of all rows, from context_.projected to mixed_ and, if it is there, log_sum_exps_.
  void attend(const MixerLayer& layer, const Batch& batch);

  const GqaConfig& config_;
  LayerContext& context_;
  AttentionRun run_;
  GqaHeads heads_;
  RotaryRows rotary_;
  std::vector<Buffer<float>> gates_;  // one a worker: [gate_width]
  GqaGradient gradient_;
  // Of this forward pass:
  MatrixView<float> mixed_;         // [rows, q_width]
  MatrixView<float> log_sum_exps_;  // [rows, num_heads] or null
};

GqaAttention::GqaAttention(const GqaConfig& config, LayerContext& context)
    : config_(config),
      context_(context),
      run_({.key_dim = config.head_dim,
            .value_dim = config.head_dim,
            .cache_heads = config.num_kv_heads,
            .most_group = config.group(),
            .scale = config.scale},
           context),
      heads_(config, *context.compute.vector),
      rotary_(config.rope),
      gates_(static_cast<std::size_t>(context.compute.pool->size())),
      gradient_(config, context, run_.kernel()) {
  if (!config.gated) return;
  for (Buffer<float>& gates : gates_) gates = Buffer<float>(config.gate_width());
}

void GqaAttention::begin(const Batch& batch) {
  rotary_.begin(batch, *context_.compute.pool);
  run_.begin(batch, config_.shape());
}

void GqaAttention::part_gates(std::int64_t row, int worker) const {
  float* const gates = gates_[static_cast<std::size_t>(worker)].data();
  const std::int64_t size = config_.head_dim;
  float* const heads = queries_of(row) - config_.gate_width();  // a query and its gate each
  for (std::int64_t h = 0; h < config_.num_heads; ++h) {
    std::copy_n(heads + (2 * h + 1) * size, size, gates + h * size);
  }
  for (std::int64_t h = config_.num_heads; h-- > 0;) {  // the last first: none is overwritten
    std::copy_n(heads + 2 * h * size, size, queries_of(row) + h * size);
  }
  std::copy_n(gates, config_.gate_width(), heads);
}

void GqaAttention::apply_gates(std::int64_t row) const {
  const std::int64_t width = config_.gate_width();
  float* const gates = queries_of(row) - width;
  context_.compute.vector->sigmoid(gates, width);
  const std::span<float> mixed = mixed_.row(row);
  for (std::int64_t i = 0; i < width; ++i) mixed[static_cast<std::size_t>(i)] *= gates[i];
}

void GqaAttention::prepare_token(const MixerLayer& layer, const BatchToken& token,
                                 std::int64_t row) const {
  float* const queries = queries_of(row);
  heads_.prepare(layer.weights, rotary_.row(row), queries);
  const float* const keys = queries + config_.q_width();
  const float* const values = keys + config_.kv_width();
  for (std::int64_t h = 0; h < config_.num_kv_heads; ++h) {
    run_.store(layer.index, token, h, keys + h * config_.head_dim, values + h * config_.head_dim);
  }
}

void GqaAttention::attend(const MixerLayer& layer, const Batch& batch) {
  if (batch.rows() == 0) return;
  AttentionHeads heads{.queries = {queries_of(0), config_.projected_width(), config_.head_dim},
                       .results = {mixed_.data(), config_.q_width(), config_.head_dim}};
  if (log_sum_exps_.rows() > 0) heads.log_sum_exps = {log_sum_exps_.data(), config_.num_heads, 1};
  if (config_.sinks) heads.sinks = layer.weights[kSinks].vector.data();
  run_.run(layer.index, batch, heads);
}

void GqaAttention::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  const WeightSet& weights = layer.weights;
  const std::int64_t rows = batch.rows();
  const std::int64_t width = config_.projected_width();
  auto* const keep = static_cast<GqaStash*>(part.keep);
  context_.projected.reserve(rows * width);
  const MatrixView<float> prepared = context_.projected.matrix(rows, width);
  MatrixView<float> projected = prepared;
  if (keep != nullptr) {
    keep->resize(rows);
    projected = keep->projected();
    mixed_ = keep->attended();
    log_sum_exps_ = keep->log_sum_exps();
  } else {
    context_.mixed.reserve(rows * config_.q_width());
    mixed_ = context_.mixed.matrix(rows, config_.q_width());
    log_sum_exps_ = {};
  }
  context_.linear.forward(weights[kQkv], weights[kQkvBias].vector, part.x, projected);
  context_.compute.pool->for_each_row(rows, [&](std::int64_t row, int worker) {
    if (keep != nullptr) std::ranges::copy(projected.row(row), prepared.row(row).data());
    if (config_.gated) part_gates(row, worker);
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  attend(layer, batch);
  if (config_.gated) {
    context_.compute.pool->for_each_row(rows, [&](std::int64_t row) { apply_gates(row); });
  }
  context_.linear.forward(weights[kO], weights[kOBias].vector, mixed_, part.y);
}

void GqaAttention::backward(const MixerLayer& layer, const Batch& /*batch*/, Stash& stash,
                            const PartBackward& part) {
  gradient_.run(layer.weights, rotary_, static_cast<const GqaStash&>(stash), part);
}

}  // namespace

std::unique_ptr<TokenMixer> make_gqa_attention(const GqaConfig& config, LayerContext& context) {
  return std::make_unique<GqaAttention>(config, context);
}

}  // namespace moesaic
