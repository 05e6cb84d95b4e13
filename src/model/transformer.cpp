#include "src/model/transformer.h"

#include <map>

#include "src/model/decoder_layer.h"

namespace moesaic {
namespace {

LayerContext::Setup context_setup(const ModelConfig& config, Precision precision,
                                  const Compute& compute) {
  return {.compute = compute,
          .precision = precision,
          .hidden = config.hidden_size,
          .num_experts = config.num_experts,
          .experts_per_token = config.experts_per_token,
          .epsilon = static_cast<float>(config.rms_norm_eps),
          .residual_multiplier = static_cast<float>(config.residual_multiplier)};
}

}  // namespace

struct Transformer::Impl {
  Impl(const ModelConfig& model_config, const ModelWeights& model_weights, Communicator& experts,
       const Compute& compute)
      : config(model_config),
        weights(model_weights),
        context(context_setup(config, weights.precision, compute), experts),
        loss_head(config, weights, context) {
    for (std::size_t l = 0; l < config.layers.size(); ++l) {
      const auto& [mixer_kind, feed_forward_kind] = config.layers[l];
      std::unique_ptr<TokenMixer>& mixer = mixers[mixer_kind.get()];
      if (mixer == nullptr) mixer = mixer_kind->make_mixer(context);
      const LayerWeights& layer = weights.layers[l];
      layers.emplace_back(DecoderLayer::Parts{.index = static_cast<std::int64_t>(l),
                                              .weights = layer,
                                              .mixer = *mixer,
                                              .feed_forward = feed_forward_kind->make_layer(
                                                  layer.feed_forward, context)},
                          context);
    }
  }

  void embed(const Batch& batch, MatrixView<float> x) {
    context.finite_rows.begin(x.rows());
    context.for_each_row(x.rows(), [&](std::int64_t row) {
      const std::span<float> out = x.row(row);
      weights.embedding.read_rows(batch.token_ids[static_cast<std::size_t>(row)], 1, out);
      if (config.embedding_multiplier != 1) {
        for (float& value : out) value *= static_cast<float>(config.embedding_multiplier);
      }
      context.finite_rows.look(row, FiniteRows::kEmbedding, out);
    });
  }

  MatrixView<const float> head(const Batch& batch, MatrixView<const float> x) {
    const PhaseScope scope(context.times, Phase::head);
    const auto count = static_cast<std::int64_t>(batch.logit_rows.size());
    logits.reserve(count * config.vocab_size);
    context.normed.reserve(count * x.cols());
    const MatrixView<float> out = logits.matrix(count, config.vocab_size);
    const MatrixView<float> normed = context.normed.matrix(count, x.cols());
    context.for_each_row(count, [&](std::int64_t i) {
      context.compute.vector->rms_norm(x.row(batch.logit_rows[static_cast<std::size_t>(i)]).data(),
                                       weights.final_norm.data(), context.config.epsilon, x.cols(),
                                       normed.row(i).data());
    });
    context.linear.forward({weights.lm_head}, {}, normed, out);
    if (config.logits_scaling != 1) {
      context.for_each_row(count, [&](std::int64_t row) {
        for (float& value : out.row(row)) value /= static_cast<float>(config.logits_scaling);
      });
    }
    return out;
  }

  void begin(const Batch& batch) {
    for (const auto& [kind, mixer] : mixers) mixer->begin(batch);
    ++context.moe.label.step;
  }

  void forward_kept(std::span<const SequenceChunk> chunks, Recompute recompute, KeptPass& kept) {
    kept.batch = make_batch(chunks, config.vocab_size);
    kept.samples.clear();
    for (const BatchSequence& sequence : kept.batch.sequences) {
      kept.samples.push_back({sequence.first_row, sequence.num_rows});
    }
    kept.out.reserve(kept.batch.rows() * config.hidden_size);
    const MatrixView<float> x = kept.out.matrix(kept.batch.rows(), config.hidden_size);
    embed(kept.batch, x);
    begin(kept.batch);
    kept.layers.resize(layers.size());
    kept.routers.assign(layers.size(), {});
    for (std::size_t l = 0; l < layers.size(); ++l) {
      context.moe.statistics = &kept.routers[l];
      layers[l].forward_kept(kept.batch, x, recompute, kept.layers[l]);
    }
    context.moe.statistics = nullptr;
    computed_positions += kept.batch.rows();
    weights.files.require_read();
  }

  /// A layer that has to compute again gets the memory of one of its kind that needs it no more.
  void take_stashes(KeptPass& kept, std::size_t layer) const {
    KeptLayer& to = kept.layers[layer];
    if (to.is_whole || to.mixer != nullptr) return;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      KeptLayer& from = kept.layers[l];
      const bool is_alike = config.layers[l].mixer == config.layers[layer].mixer &&
                            config.layers[l].feed_forward == config.layers[layer].feed_forward;
      if (!is_alike || from.is_whole || from.mixer == nullptr) continue;
      to.mixer = std::move(from.mixer);
      to.feed_forward = std::move(from.feed_forward);
      return;
    }
  }

  void backward(KeptPass& kept, MatrixView<float> dx, AdapterGradients& adapters) {
    begin(kept.batch);
    for (std::size_t l = layers.size(); l-- > 0;) {
      take_stashes(kept, l);
      layers[l].backward({kept.batch, kept.samples, adapters, dx}, kept.layers[l]);
    }
    weights.files.require_read();
  }

  MatrixView<const float> forward(std::span<const SequenceChunk> chunks) {
    const Batch batch = make_batch(chunks, config.vocab_size);
    residual.reserve(batch.rows() * config.hidden_size);
    const MatrixView<float> x = residual.matrix(batch.rows(), config.hidden_size);
    embed(batch, x);
    begin(batch);
    for (DecoderLayer& layer : layers) layer.forward(batch, x);
    for (const SequenceChunk& chunk : chunks) {
      chunk.sequence->advance(static_cast<std::int64_t>(chunk.tokens.size()));
    }
    computed_positions += batch.rows();
    const MatrixView<const float> out = head(batch, x);
    weights.files.require_read();  // before anybody sees what came of zeros in their place
    return out;
  }

  const ModelConfig& config;
  const ModelWeights& weights;
  LayerContext context;
  std::map<const MixerKind*, std::unique_ptr<TokenMixer>> mixers;
  std::vector<DecoderLayer> layers;
  LossHead loss_head;
  std::int64_t computed_positions = 0;

  Buffer<float> residual;  // [rows, hidden]
  Buffer<float> logits;    // [wanted rows, vocab]
};

Transformer::Transformer(const ModelConfig& config, const ModelWeights& weights,
                         Communicator& experts, const Compute& compute)
    : impl_(std::make_unique<Impl>(config, weights, experts, compute)) {}

Transformer::~Transformer() = default;

MatrixView<const float> Transformer::forward(std::span<const SequenceChunk> batch) {
  return impl_->forward(batch);
}

void Transformer::forward_kept(std::span<const SequenceChunk> batch, Recompute recompute,
                               KeptPass& kept) {
  impl_->forward_kept(batch, recompute, kept);
}

LossHead& Transformer::loss_head() noexcept {
  return impl_->loss_head;
}

void Transformer::backward(KeptPass& kept, MatrixView<float> dx, AdapterGradients& adapters) {
  impl_->backward(kept, dx, adapters);
}

const ModelConfig& Transformer::config() const noexcept {
  return impl_->config;
}
Precision Transformer::precision() const noexcept {
  return impl_->weights.precision;
}
const Compute& Transformer::compute() const noexcept {
  return impl_->context.compute;
}
const PhaseTimes& Transformer::times() const noexcept {
  return impl_->context.times;
}
const ExpertLoad& Transformer::load() const noexcept {
  return impl_->context.moe.load;
}

std::optional<std::int64_t> Transformer::damaged_by(std::int64_t row) const {
  return impl_->context.finite_rows.damaged_by(row);
}

std::int64_t Transformer::computed_positions() const noexcept {
  return impl_->computed_positions;
}

void Transformer::reset_statistics() {
  impl_->computed_positions = 0;
  impl_->context.times = {};
  impl_->context.moe.load = {};
}

}  // namespace moesaic
