#include "src/model/mla_attention.h"

#include <algorithm>

#include "src/model/attention_run.h"
#include "src/model/mla_gradient.h"
#include "src/model/rotary_rows.h"

namespace moesaic {
namespace {

/// Every token takes the same way, whether it comes with others or alone: queries meet the latent,
/// not keys that are made of it.
class MlaAttention : public TokenMixer {
 public:
  MlaAttention(const MlaConfig& config, LayerContext& context);

  void begin(const Batch& batch) override;
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;
  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    return std::make_unique<MlaStash>(config_);
  }
  void backward(const MixerLayer& layer, const Batch& batch, Stash& stash,
                const PartBackward& part) override;

 private:
  /// Of this forward pass: in memory of the context, or in the stash where one is filled.
  struct Rows {
    MatrixView<float> projected_inner;    // [rows, query_rank]
    MatrixView<float> inner;              // [rows, query_rank] normed
    MatrixView<float> queries;            // [rows, heads * query_dim]
    MatrixView<float> projected_latents;  // [rows, key_dim]
    MatrixView<float> latents;            // [rows, key_dim] normed and rotated
    MatrixView<float> met;                // [heads * rows, key_dim] queries, a head after the other
    HeadRows<float> attended;             // of latents
    HeadRows<float> log_sum_exps;         // or none
    MatrixView<float> mixed;              // [rows, heads * value_dim]
  };

  void set_rows(std::int64_t count, const MlaStash* keep);
  void project(const WeightSet& weights, MatrixView<const float> x);
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  /// Attention of all rows.
  void attend(const MixerLayer& layer, const Batch& batch);
  /// What comes of it times each head's matrix of values.
  void meet_values(const WeightSet& weights);
  [[nodiscard]] HeadRange all_heads() const { return {0, config_.num_heads, rows_.queries.rows()}; }
  [[nodiscard]] HeadRows<const float> projected_queries() const {
    return {rows_.queries.data(), config_.queries_width(), config_.query_dim()};
  }

  const MlaConfig& config_;
  LayerContext& context_;
  AttentionRun run_;
  RotaryRows rotary_;
  MlaInputs inputs_;
  HeadProducts products_;
  MlaGradient gradient_;
  Rows rows_;
};

MlaAttention::MlaAttention(const MlaConfig& config, LayerContext& context)
    : config_(config),
      context_(context),
      run_({.key_dim = config.key_dim(),
            .value_dim = config.latent,
            .most_group = config.num_heads,
            .scale = config.scale},
           context),
      rotary_(config.rope),
      inputs_(config, context),
      products_(context.gemm, context.adapters),
      gradient_(config, context, run_.kernel(), products_) {}

void MlaAttention::begin(const Batch& batch) {
  rotary_.begin(batch, *context_.compute.pool);
  run_.begin(batch, config_.shape(batch.rows(), context_.compute.pool->size()));
}

void MlaAttention::set_rows(std::int64_t count, const MlaStash* keep) {
  context_.projected.reserve(count * config_.projected_width());
  context_.mixed.reserve(count * config_.mixed_width());
  const std::int64_t queries = config_.queries_width();
  rows_.inner = {context_.projected.data(), count, config_.query_rank};
  rows_.queries = {rows_.inner.data() + count * config_.query_rank, count, queries};
  rows_.latents = {rows_.queries.data() + count * queries, count, config_.key_dim()};
  rows_.met = {context_.mixed.data(), config_.num_heads * count, config_.key_dim()};
  rows_.projected_inner = rows_.inner;
  rows_.projected_latents = rows_.latents;
  rows_.attended = {rows_.met.data(), config_.key_dim(), count * config_.key_dim()};
  rows_.log_sum_exps = {};
  rows_.mixed = {context_.mixed.data(), count, config_.num_heads * config_.value_dim};
  if (keep == nullptr) return;
  rows_.projected_inner = keep->inner();
  rows_.queries = keep->queries();
  rows_.projected_latents = keep->latents();
  rows_.attended = keep->attended();
  rows_.log_sum_exps = keep->log_sum_exps();
  rows_.mixed = keep->mixed();
}

void MlaAttention::project(const WeightSet& weights, MatrixView<const float> x) {
  MatrixView<const float> inner = x;
  if (config_.query_rank > 0) {
    context_.linear.forward(weights[MlaWeight::kQA], weights[MlaWeight::kQABias].vector, x,
                            rows_.projected_inner);
    context_.for_each_row(x.rows(), [&](std::int64_t row) {
      inputs_.norm(weights, MlaWeight::kQANorm, rows_.projected_inner.row(row),
                   rows_.inner.row(row).data());
    });
    inner = rows_.inner;
  }
  context_.linear.forward(weights[MlaWeight::kQ], {}, inner, rows_.queries);
  context_.linear.forward(weights[MlaWeight::kKvA], weights[MlaWeight::kKvABias].vector, x,
                          rows_.projected_latents);
  products_.transposed(mla_keys(config_, weights), all_heads(), projected_queries(),
                       first_columns(rows_.met, config_.latent));
}

/// The rest of queries and key: norm of the latent, rotation, cache.
void MlaAttention::prepare_token(const MixerLayer& layer, const BatchToken& token,
                                 std::int64_t row) const {
  const RotaryAngles angles = rotary_.row(row);
  float* const key = rows_.latents.row(row).data();  // made in place where nothing is kept
  inputs_.make_key(layer.weights, angles, rows_.projected_latents.row(row), key);
  run_.store(layer.index, token, 0, key, key);  // the value: its first part
  inputs_.rotate_queries(all_heads(), row, angles, projected_queries(), rows_.met);
}

void MlaAttention::attend(const MixerLayer& layer, const Batch& batch) {
  const std::int64_t width = config_.key_dim();
  run_.run(layer.index, batch,
           {.queries = {rows_.met.data(), width, rows_.queries.rows() * width},
            .results = rows_.attended,
            .log_sum_exps = rows_.log_sum_exps});
}

void MlaAttention::meet_values(const WeightSet& weights) {
  const std::int64_t count = rows_.queries.rows();
  const std::int64_t width = config_.value_dim;
  const MatrixView<float> by_head(context_.projected.data(), count * config_.num_heads, width);
  products_.forward(mla_values(config_, weights), all_heads(), rows_.attended, by_head);
  context_.for_each_row(count, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < config_.num_heads; ++head) {
      std::ranges::copy(by_head.row(head * count + row),
                        rows_.mixed.row(row).data() + head * width);
    }
  });
}

void MlaAttention::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  auto* const keep = static_cast<MlaStash*>(part.keep);
  if (keep != nullptr) keep->resize(batch.rows());
  if (batch.rows() == 0) return;
  const WeightSet& weights = layer.weights;
  set_rows(batch.rows(), keep);
  project(weights, part.x);
  context_.for_each_row(batch.rows(), [&](std::int64_t row) {
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  attend(layer, batch);
  meet_values(weights);
  context_.linear.forward(weights[MlaWeight::kOut], weights[MlaWeight::kOutBias].vector,
                          rows_.mixed, part.y);
}

void MlaAttention::backward(const MixerLayer& layer, const Batch& /*batch*/, Stash& stash,
                            const PartBackward& part) {
  gradient_.run(layer.weights, rotary_, static_cast<const MlaStash&>(stash), part);
}

}  // namespace

std::unique_ptr<TokenMixer> make_mla_attention(const MlaConfig& config, LayerContext& context) {
  return std::make_unique<MlaAttention>(config, context);
}

}  // namespace moesaic
