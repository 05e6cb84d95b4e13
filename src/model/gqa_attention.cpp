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
    return std::make_unique<GqaStash>(config_);
  }
  void backward(const MixerLayer& layer, const Batch& batch, Stash& stash,
                const PartBackward& part) override;

 private:
  /// Queries, keys and values of a row; gates stand before them.
  [[nodiscard]] float* queries_of(std::int64_t row) const {
    return context_.projected.data() + row * config_.projected_width() + config_.gate_width();
  }
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  /// Attention of all rows, from context_.projected to mixed_ and, if it is there, log_sum_exps_.
  void attend(const MixerLayer& layer, const Batch& batch);

  const GqaConfig& config_;
  LayerContext& context_;
  AttentionRun run_;
  GqaHeads heads_;
  RotaryRows rotary_;
  std::vector<Buffer<float>> head_rows_;  // one a worker: [2 gate_width] or none
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
      head_rows_(static_cast<std::size_t>(context.compute.pool->size())),
      gradient_(config, context, run_.kernel()) {
  if (!config.gated) return;
  for (Buffer<float>& heads : head_rows_) heads = Buffer<float>(2 * config.gate_width());
}

void GqaAttention::begin(const Batch& batch) {
  rotary_.begin(batch, *context_.compute.pool);
  run_.begin(batch, config_.shape());
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
  context_.mixed.reserve(rows * config_.q_width());
  const MatrixView<float> prepared = context_.projected.matrix(rows, width);
  const MatrixView<float> results = context_.mixed.matrix(rows, config_.q_width());
  MatrixView<float> projected = prepared;
  mixed_ = results;
  log_sum_exps_ = {};
  if (keep != nullptr) {
    keep->resize(rows);
    projected = keep->projected();
    mixed_ = keep->attended();
    log_sum_exps_ = keep->log_sum_exps();
  }
  context_.linear.forward(weights[kQkv], weights[kQkvBias].vector, part.x, projected);
  context_.compute.pool->for_each_row(rows, [&](std::int64_t row, int worker) {
    float* const heads = head_rows_[static_cast<std::size_t>(worker)].data();
    if (config_.gated) heads_.part_gates(projected.row(row).data(), heads);
    if (keep != nullptr) std::ranges::copy(projected.row(row), prepared.row(row).data());
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  attend(layer, batch);
  if (config_.gated) {
    context_.compute.pool->for_each_row(rows, [&](std::int64_t row) {
      heads_.apply_gates(prepared.row(row).data(), mixed_.row(row).data(), results.row(row).data());
    });
  }
  context_.linear.forward(weights[kO], weights[kOBias].vector, config_.gated ? results : mixed_,
                          part.y);
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
