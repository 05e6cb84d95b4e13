#include "src/model/transformer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "src/model/attention.h"
#include "src/model/batch.h"
#include "src/model/linear.h"

namespace moesaic {
namespace {

constexpr std::int64_t kTokensPerTask = 8;

}  // namespace

struct Transformer::Impl {
  Impl(const ModelConfig& model_config, const ModelWeights& model_weights, Communicator& experts,
       const Compute& rank_compute)
      : config(model_config),
        weights(model_weights),
        compute(rank_compute),
        gemm(rank_compute),
        linear(gemm),
        attention(model_config, model_weights.precision, rank_compute),
        placement(std::max<std::int64_t>(config.num_experts, 1), experts.size()),
        moe({experts, placement, gemm, times},
            config.hidden_size * element_bytes(weights.precision), config.experts_per_token),
        experts_work{gemm} {
    const RouterOptions router{
        .topk = config.experts_per_token,
        .softmax_over_all = config.router_softmax == RouterSoftmax::all_experts,
        .normalize = config.norm_topk_prob};
    const RowSource::Element element = activation_element(weights.precision);
    for (std::size_t l = 0; l < weights.layers.size(); ++l) {
      const LayerWeights& layer = weights.layers[l];
      moe_layers.emplace_back();
      if (!config.is_moe[l]) continue;
      moe_layers.back().emplace(Router(layer.router, router, compute),
                                std::make_unique<CpuExperts>(layer.experts, element, experts_work),
                                element, compute);
    }
  }

  /// body(row) for all rows, over the threads.
  template <typename Body>
  void for_each_row(std::int64_t rows, Body&& body) const {
    compute.pool->for_each(rows, kTokensPerTask, body);
  }

  void embed(const Batch& batch, MatrixView<float> x) const {
    for_each_row(x.rows(), [&](std::int64_t row) {
      const std::span<float> out = x.row(row);
      weights.embedding.read_rows(batch.token_ids[static_cast<std::size_t>(row)], 1, out);
      if (config.embedding_multiplier == 1) return;
      for (float& value : out) value *= static_cast<float>(config.embedding_multiplier);
    });
  }

  void norm(MatrixView<const float> x, std::span<const float> weight, MatrixView<float> y) const {
    for_each_row(x.rows(), [&](std::int64_t row) {
      compute.vector->rms_norm(x.row(row).data(), weight.data(),
                               static_cast<float>(config.rms_norm_eps), x.cols(),
                               y.row(row).data());
    });
  }

  /// x += multiplier * y
  void add_residual(MatrixView<const float> y, MatrixView<float> x) const {
    for_each_row(x.rows(), [&](std::int64_t row) {
      compute.vector->add_scaled(y.row(row).data(), static_cast<float>(config.residual_multiplier),
                                 x.cols(), x.row(row).data());
    });
  }

  void feed_forward(std::size_t l, MatrixView<const float> x, MatrixView<float> y) {
    const LayerWeights& layer = weights.layers[l];
    if (!moe_layers[l]) {
      const PhaseScope scope(times, Phase::dense);
      linear.gated_mlp(layer.dense, x, y);
      return;
    }
    const bool has_shared = layer.shared.gate.panels != nullptr;
    moe_layers[l]->begin(x, moe);
    if (has_shared) shared_expert(layer, x);
    moe_layers[l]->end(y, moe);
    if (!has_shared) return;
    const PhaseScope scope(times, Phase::dense);
    for_each_row(x.rows(), [&](std::int64_t row) {
      // sigmoid(g) = softmax({g, 0})[0]
      std::array<float, 2> gate = {shared_gates.data()[row], 0.0F};
      compute.vector->softmax(gate.data(), 2);
      compute.vector->add_scaled(shared_out.data() + row * y.cols(), gate[0], y.cols(),
                                 y.row(row).data());
    });
  }

  void shared_expert(const LayerWeights& layer, MatrixView<const float> x) {
    const PhaseScope scope(times, Phase::dense);
    shared_gates.reserve(x.rows());
    shared_out.reserve(x.rows() * x.cols());
    linear.forward(layer.shared_gate, {}, x, shared_gates.matrix(x.rows(), 1));
    linear.gated_mlp(layer.shared, x, shared_out.matrix(x.rows(), x.cols()));
  }

  MatrixView<const float> head(const Batch& batch, MatrixView<const float> x) {
    const PhaseScope scope(times, Phase::head);
    const auto count = static_cast<std::int64_t>(batch.logit_rows.size());
    logits.reserve(count * config.vocab_size);
    const MatrixView<float> out = logits.matrix(count, config.vocab_size);
    const MatrixView<float> normed = norms.matrix(count, x.cols());
    for_each_row(count, [&](std::int64_t i) {
      compute.vector->rms_norm(x.row(batch.logit_rows[static_cast<std::size_t>(i)]).data(),
                               weights.final_norm.data(), static_cast<float>(config.rms_norm_eps),
                               x.cols(), normed.row(i).data());
    });
    linear.forward(weights.lm_head, {}, normed, out);
    if (config.logits_scaling != 1) {
      for_each_row(count, [&](std::int64_t row) {
        for (float& value : out.row(row)) value /= static_cast<float>(config.logits_scaling);
      });
    }
    return out;
  }

  MatrixView<const float> forward(std::span<const SequenceChunk> chunks) {
    const Batch batch = make_batch(chunks, config.vocab_size);
    const std::int64_t rows = batch.rows();
    const std::int64_t hidden = config.hidden_size;
    for (Buffer<float>* buffer : {&residual, &norms, &layer_out}) buffer->reserve(rows * hidden);
    const MatrixView<float> x = residual.matrix(rows, hidden);
    const MatrixView<float> normed = norms.matrix(rows, hidden);
    const MatrixView<float> y = layer_out.matrix(rows, hidden);
    embed(batch, x);
    attention.begin(batch);
    for (std::size_t l = 0; l < weights.layers.size(); ++l) {
      const LayerWeights& layer = weights.layers[l];
      {
        const PhaseScope scope(times, Phase::attention);
        norm(x, layer.input_norm, normed);
        attention.forward(static_cast<std::int64_t>(l), layer, batch, normed, y, linear);
        add_residual(y, x);
        norm(x, layer.post_attention_norm, normed);
      }
      feed_forward(l, normed, y);
      add_residual(y, x);
    }
    for (const SequenceChunk& chunk : chunks) {
      chunk.cache->advance(static_cast<std::int64_t>(chunk.tokens.size()));
    }
    return head(batch, x);
  }

  const ModelConfig& config;
  const ModelWeights& weights;
  Compute compute;
  GroupedGemm gemm;
  Linear linear;
  Attention attention;
  ExpertPlacement placement;
  PhaseTimes times;
  MoeWorkspace moe;
  CpuExpertsWorkspace experts_work;
  std::vector<std::optional<MoeLayer>> moe_layers;  // empty for dense layers

  Buffer<float> residual;      // [rows, hidden]
  Buffer<float> norms;         // [rows, hidden]
  Buffer<float> layer_out;     // [rows, hidden]
  Buffer<float> shared_out;    // [rows, hidden]
  Buffer<float> shared_gates;  // [rows]
  Buffer<float> logits;        // [wanted rows, vocab]
};

Transformer::Transformer(const ModelConfig& config, const ModelWeights& weights,
                         Communicator& experts, const Compute& compute)
    : impl_(std::make_unique<Impl>(config, weights, experts, compute)) {}

Transformer::~Transformer() = default;

MatrixView<const float> Transformer::forward(std::span<const SequenceChunk> batch) {
  return impl_->forward(batch);
}

KvCache Transformer::make_cache(const KvCache::Extent& extent) const {
  return {impl_->config, impl_->weights.precision, extent};
}

const ModelConfig& Transformer::config() const noexcept {
  return impl_->config;
}
Precision Transformer::precision() const noexcept {
  return impl_->weights.precision;
}
const Compute& Transformer::compute() const noexcept {
  return impl_->compute;
}
const PhaseTimes& Transformer::times() const noexcept {
  return impl_->times;
}
const ExpertLoad& Transformer::load() const noexcept {
  return impl_->moe.load;
}

void Transformer::reset_statistics() {
  impl_->times = {};
  impl_->moe.load = {};
}

}  // namespace moesaic
