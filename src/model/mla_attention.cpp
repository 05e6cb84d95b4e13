#include "src/model/mla_attention.h"

#include <algorithm>
#include <span>

#include "src/model/attention_run.h"
#include "src/model/rotary_rows.h"

namespace moesaic {
namespace {

/// The rows of one head in a matrix that has those of all heads.
PackedMatrix rows_of_head(const PackedMatrix& all, std::int64_t head, std::int64_t rows) {
  PackedMatrix part = all;
  part.rows = rows;
  part.panels = all.panel(head * rows / kPanelColumns);
  return part;
}

/// Every token takes the same way, whether it comes with others or alone: queries meet the latent,
/// not keys that are made of it.
class MlaAttention : public TokenMixer {
 public:
  MlaAttention(const MlaConfig& config, LayerContext& context);

  void begin(const Batch& batch) override;
  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override;

 private:
  /// Of this forward pass; all but `mixed` one behind the other in context_.projected.
  struct Rows {
    MatrixView<float> inner;    // [rows, query_rank]
    MatrixView<float> queries;  // [rows, heads * query_dim]
    MatrixView<float> latents;  // [rows, key_dim]
    MatrixView<float> mixed;    // [heads * rows, key_dim], a head after the other
  };

  void set_rows(std::int64_t count);
  void project(const WeightSet& weights, MatrixView<const float> x);
  void norm(const WeightSet& weights, std::size_t which, std::span<float> x) const;
  /// A head's queries without their rotary part times its matrix of keys: the queries of latents.
  void meet_keys(const PackedMatrix& keys);
  /// What comes of attention to a head's latents times its matrix of values; y [rows, heads *
  /// value_dim].
  [[nodiscard]] MatrixView<const float> meet_values(const PackedMatrix& values);
  void prepare_token(const MixerLayer& layer, const BatchToken& token, std::int64_t row) const;
  /// Attention of all rows of rows_.mixed, in whose place its results come.
  void attend(const MixerLayer& layer, const Batch& batch);

  const MlaConfig& config_;
  LayerContext& context_;
  AttentionRun run_;
  RotaryRows rotary_;
  Rows rows_;
  std::vector<GemmGroup> groups_;            // [heads]
  std::vector<const std::byte*> head_rows_;  // [heads * rows]
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
      groups_(static_cast<std::size_t>(config.num_heads)) {}

void MlaAttention::begin(const Batch& batch) {
  rotary_.begin(batch, *context_.compute.pool);
  run_.begin(batch, config_.shape(batch.rows(), context_.compute.pool->size()));
}

void MlaAttention::set_rows(std::int64_t count) {
  context_.projected.reserve(count * config_.projected_width());
  context_.mixed.reserve(count * config_.mixed_width());
  head_rows_.resize(static_cast<std::size_t>(count * config_.num_heads));
  const std::int64_t queries = config_.num_heads * config_.query_dim();
  rows_.inner = {context_.projected.data(), count, config_.query_rank};
  rows_.queries = {rows_.inner.data() + count * config_.query_rank, count, queries};
  rows_.latents = {rows_.queries.data() + count * queries, count, config_.key_dim()};
  rows_.mixed = {context_.mixed.data(), config_.num_heads * count, config_.key_dim()};
}

void MlaAttention::norm(const WeightSet& weights, std::size_t which, std::span<float> x) const {
  context_.compute.vector->rms_norm(x.data(), weights[which].vector.data(), MlaConfig::kNormEpsilon,
                                    std::ssize(x), x.data());
}

void MlaAttention::project(const WeightSet& weights, MatrixView<const float> x) {
  MatrixView<const float> inner = x;
  if (config_.query_rank > 0) {
    context_.linear.forward(weights[MlaWeight::kQA], weights[MlaWeight::kQABias].vector, x,
                            rows_.inner);
    context_.for_each_row(x.rows(), [&](std::int64_t row) {
      norm(weights, MlaWeight::kQANorm, rows_.inner.row(row));
    });
    inner = rows_.inner;
  }
  context_.linear.forward(weights[MlaWeight::kQ], {}, inner, rows_.queries);
  context_.linear.forward(weights[MlaWeight::kKvA], weights[MlaWeight::kKvABias].vector, x,
                          rows_.latents);
}

void MlaAttention::meet_keys(const PackedMatrix& keys) {
  const std::int64_t count = rows_.queries.rows();
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    for (std::int64_t row = 0; row < count; ++row) {
      head_rows_[static_cast<std::size_t>(head * count + row)] = reinterpret_cast<const std::byte*>(
          rows_.queries.row(row).data() + head * config_.query_dim());
    }
    groups_[static_cast<std::size_t>(head)] = {
        .first_row = head * count,
        .num_rows = count,
        .weights = rows_of_head(keys, head, config_.nope_dim)};
  }
  context_.adapters.transposed().run(
      {.rows = head_rows_.data(), .num_rows = rows_.mixed.rows(), .depth = config_.nope_dim},
      groups_, output_of(rows_.mixed));
}

MatrixView<const float> MlaAttention::meet_values(const PackedMatrix& values) {
  const std::int64_t count = rows_.queries.rows();
  const std::int64_t width = config_.value_dim;
  for (std::int64_t row = 0; row < rows_.mixed.rows(); ++row) {
    head_rows_[static_cast<std::size_t>(row)] =
        reinterpret_cast<const std::byte*>(rows_.mixed.row(row).data());
  }
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    groups_[static_cast<std::size_t>(head)].weights = rows_of_head(values, head, width);
  }
  const MatrixView<float> by_head(context_.projected.data(), rows_.mixed.rows(), width);
  context_.gemm.run(
      {.rows = head_rows_.data(), .num_rows = rows_.mixed.rows(), .depth = config_.latent}, groups_,
      output_of(by_head));
  const MatrixView<float> by_token(context_.mixed.data(), count, config_.num_heads * width);
  context_.for_each_row(count, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < config_.num_heads; ++head) {
      std::ranges::copy(by_head.row(head * count + row), by_token.row(row).data() + head * width);
    }
  });
  return by_token;
}

/// The rest of queries and key: norm of the latent, rotation, cache.
void MlaAttention::prepare_token(const MixerLayer& layer, const BatchToken& token,
                                 std::int64_t row) const {
  const VectorKernels& vector = *context_.compute.vector;
  const RotaryAngles angles = rotary_.row(row);
  const std::span<float> latent = rows_.latents.row(row);
  norm(layer.weights, MlaWeight::kKvANorm, latent.first(static_cast<std::size_t>(config_.latent)));
  vector.rotate(angles, latent.data() + config_.latent);
  run_.store(layer.index, token, 0, latent.data(), latent.data());  // the value: its first part
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    float* const query = rows_.mixed.row(head * rows_.queries.rows() + row).data();
    std::copy_n(rows_.queries.row(row).data() + head * config_.query_dim() + config_.nope_dim,
                config_.rope_dim, query + config_.latent);
    vector.rotate(angles, query + config_.latent);
  }
}

void MlaAttention::attend(const MixerLayer& layer, const Batch& batch) {
  const std::int64_t width = config_.key_dim();
  const HeadRows<float> rows{rows_.mixed.data(), width, rows_.queries.rows() * width};
  run_.run(layer.index, batch,
           {.queries = {rows.data, rows.row_stride, rows.head_stride}, .results = rows});
}

void MlaAttention::forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) {
  if (batch.rows() == 0) return;
  const WeightSet& weights = layer.weights;
  set_rows(batch.rows());
  project(weights, part.x);
  meet_keys(weights[MlaWeight::kKeys].matrix);
  context_.for_each_row(batch.rows(), [&](std::int64_t row) {
    prepare_token(layer, batch.tokens[static_cast<std::size_t>(row)], row);
  });
  attend(layer, batch);
  context_.linear.forward(weights[MlaWeight::kOut], weights[MlaWeight::kOutBias].vector,
                          meet_values(weights[MlaWeight::kValues].matrix), part.y);
}

}  // namespace

std::unique_ptr<TokenMixer> make_mla_attention(const MlaConfig& config, LayerContext& context) {
  return std::make_unique<MlaAttention>(config, context);
}

}  // namespace moesaic
