#include "src/model/transformer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "src/model/decoder_layer.h"
#include "src/model/embedding.h"
#include "src/model/half_batches.h"
#include "src/model/output_head.h"

namespace moesaic {
namespace {

LayerContext::Setup context_setup(const ModelConfig& config, const ModelWeights& weights,
                                  const Compute& compute, const ExpertGroup& experts) {
  LayerContext::Setup setup = LayerContext::Setup::of(config, weights.precision, compute, experts);
  setup.placement = weights.placement;
  return setup;
}

bool has_experts(const ModelConfig& config, std::size_t layer) {
  return layer < config.layers.size() && config.layers[layer].feed_forward->sizes().experts > 0;
}

}  // namespace

void check_moe_options(const MoeOptions& options, const ModelConfig& config) {
  require(options.defer >= 0 && options.defer <= config.experts_per_token, ErrorKind::usage,
          "--defer {}: the model chooses {} experts a token (top-k), of which no more can wait",
          options.defer, config.experts_per_token);
}

struct Transformer::Impl {
  Impl(const ModelConfig& model_config, const ModelWeights& model_weights,
       const ExpertGroup& experts, const Compute& compute)
      : config(model_config),
        weights(model_weights),
        options(experts.options),
        context(context_setup(config, weights, compute, experts), experts.ranks),
        embedding(config, weights, context),
        output_head(config, weights, context),
        loss_head(config, weights, context) {
    check_moe_options(options, config);
    for (std::size_t l = 0; l < config.layers.size(); ++l) {
      const auto& [mixer_kind, feed_forward_kind] = config.layers[l];
      auto& [early, late] = mixers[mixer_kind.get()];
      if (early == nullptr) {
        early = mixer_kind->make_mixer(context);
        late = mixer_kind->make_mixer(context);
      }
      const LayerWeights& layer = weights.layers[l];
      const bool can_defer = has_experts(config, l) && has_experts(config, l + 1);
      layers.emplace_back(DecoderLayer::Parts{.index = static_cast<std::int64_t>(l),
                                              .weights = layer,
                                              .mixers = {early.get(), late.get()},
                                              .feed_forward = feed_forward_kind->make_layer(
                                                  layer.feed_forward, context),
                                              .defer = can_defer ? options.defer : 0},
                          context);
    }
  }

  MatrixView<const float> head(const Batch& batch, MatrixView<const float> x) {
    const PhaseScope scope(context.times, Phase::head);
    const auto count = static_cast<std::int64_t>(batch.logit_rows.size());
    logits.reserve(count * config.vocab_size);
    context.normed.reserve(count * x.cols());
    const MatrixView<float> out = logits.matrix(count, config.vocab_size);
    output_head.forward(x, batch.logit_rows, context.normed.matrix(count, x.cols()), out);
    return out;
  }

  void begin(const Batch& batch, std::size_t half = 0) {
    for (const auto& [kind, halves] : mixers) halves[half]->begin(batch);
    if (half == 0) ++step;
    context.moe[half].label.step = step;
  }

  /// Of the passes that follow.
  void set_dropout(const Dropout& dropout) {
    context.linear.set_dropout(dropout);
    context.moe.front().dropout = dropout;
  }

  void set_choices(const KeptPass& kept, std::size_t layer) {
    if (kept.choices == nullptr) return;
    kept.choices->resize(layers.size());
    context.moe.front().choices = &(*kept.choices)[layer];
  }

  void forward_kept(std::span<const SequenceChunk> chunks, Recompute recompute, KeptPass& kept) {
    require(options.is_exact(), ErrorKind::usage,
            "training takes all choices of a layer at once, exactly");
    kept.batch.fill(chunks, config.vocab_size);
    kept.samples.clear();
    for (const BatchSequence& sequence : kept.batch.sequences) {
      kept.samples.push_back({sequence.first_row, sequence.num_rows});
    }
    kept.out.reserve(kept.batch.rows() * config.hidden_size);
    const MatrixView<float> x = kept.out.matrix(kept.batch.rows(), config.hidden_size);
    embedding.forward(kept.batch, x);
    begin(kept.batch);
    set_dropout({kept.dropout, kept.row_keys});
    kept.layers.resize(layers.size());
    kept.routers.assign(layers.size(), {});
    for (std::size_t l = 0; l < layers.size(); ++l) {
      context.moe.front().statistics = &kept.routers[l];
      set_choices(kept, l);
      layers[l].forward_kept(kept.batch, x, recompute, kept.layers[l]);
    }
    context.moe.front().statistics = nullptr;
    context.moe.front().choices = nullptr;
    set_dropout({});
    context.enter_layer(-1, "loss");
    computed_positions += kept.batch.rows();
    weights.files.require_read();
  }

  /// A layer that has to compute again gets the memory of one of its kind that needs it no more,
  /// all but its input.
  void take_stashes(KeptPass& kept, std::size_t layer) const {
    KeptLayer& to = kept.layers[layer];
    if (to.is_whole || to.mixer != nullptr) return;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      KeptLayer& from = kept.layers[l];
      const bool is_alike = config.layers[l].mixer == config.layers[layer].mixer &&
                            config.layers[l].feed_forward == config.layers[layer].feed_forward;
      if (!is_alike || from.is_whole || from.mixer == nullptr) continue;
      to.middle = std::exchange(from.middle, {});
      to.mixer = std::move(from.mixer);
      to.feed_forward = std::move(from.feed_forward);
      return;
    }
  }

  void backward(KeptPass& kept, MatrixView<float> dx, AdapterGradients& adapters,
                const LayerDone& layer_done) {
    begin(kept.batch);
    set_dropout({kept.dropout, kept.row_keys});
    for (std::size_t l = layers.size(); l-- > 0;) {
      take_stashes(kept, l);
      set_choices(kept, l);
      layers[l].backward({kept.batch, kept.samples, adapters, dx}, kept.layers[l]);
      if (layer_done) layer_done(static_cast<std::int64_t>(l));
    }
    set_dropout({});
    context.moe.front().choices = nullptr;
    context.enter_layer(-1, "gradients");
    weights.files.require_read();
  }

  void run_layers(const Batch& batch, MatrixView<float> x) {
    const std::int64_t most_rows = agree_on_rows(batch.rows());
    const bool in_halves =
        options.half_batches == HalfBatches::on || (most_rows > 0 && rule.wants_halves(most_rows));
    const auto start = std::chrono::steady_clock::now();
    if (in_halves) {
      run_halves(batch, x);
    } else {
      begin(batch);
      for (DecoderLayer& layer : layers) layer.forward({.batch = batch, .x = x});
    }
    last_rows = most_rows;
    last_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// Tells the rule of the last pass; returns the most rows that any rank has now, or 0 where they
  /// do not matter. Collective.
  std::int64_t agree_on_rows(std::int64_t rows) {
    Communicator& ranks = context.moe.front().context.experts;
    if (options.half_batches != HalfBatches::automatic || ranks.size() == 1) return 0;
    std::array<std::int64_t, 2> most = {rows, std::llround(last_seconds * 1e9)};
    ranks.max(most);
    rule.add(last_rows, static_cast<double>(most[1]) * 1e-9);
    return most[0];
  }

  /// While one half computes, the rows or results of the other travel. A half has what the mixers
  /// of its layer need of the half before it.
  void run_halves(const Batch& batch, MatrixView<float> x) {
    halve(batch, last_halves);
    context.normed.reserve(x.rows() * x.cols());
    context.layer_out.reserve(x.rows() * x.cols());
    const auto pass = [&](std::size_t half, std::int64_t first_row) -> DecoderLayer::Pass {
      const Batch& part = last_halves[half];
      begin(part, half);
      return {.batch = part,
              .x = x.row_range(first_row, part.rows()),
              .half = half,
              .first_row = first_row};
    };
    const std::array halves = {pass(0, 0), pass(1, last_halves[0].rows())};
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (const DecoderLayer::Pass& half : halves) {
        if (l > 0) layers[l - 1].end(half);
        layers[l].begin(half);
      }
      for (const DecoderLayer::Pass& half : halves) layers[l].execute(half);
    }
    for (const DecoderLayer::Pass& half : halves) layers.back().end(half);
  }

  MatrixView<const float> forward(std::span<const SequenceChunk> chunks) {
    last_batch.fill(chunks, config.vocab_size);
    const Batch& batch = last_batch;
    residual.reserve(batch.rows() * config.hidden_size);
    const MatrixView<float> x = residual.matrix(batch.rows(), config.hidden_size);
    embedding.forward(batch, x);
    run_layers(batch, x);
    context.enter_layer(-1, "head");
    for (const SequenceChunk& chunk : chunks) {
      chunk.sequence->advance(static_cast<std::int64_t>(chunk.tokens.size()));
    }
    computed_positions += batch.rows();
    const MatrixView<const float> out = head(batch, x);
    weights.files.require_read();  // before anybody sees what came of zeros in their place
    return out;
  }

  /// Of rows, since the model was made.
  [[nodiscard]] RowCounters moved() const {
    const MoeContext& moe = context.moe.front().context;
    RowCounters counters = moe.experts.row_counters();
    if (moe.nodes != nullptr) counters += moe.nodes->ranks().row_counters();
    return counters;
  }

  const ModelConfig& config;
  const ModelWeights& weights;
  MoeOptions options;
  LayerContext context;
  std::map<const MixerKind*, std::array<std::unique_ptr<TokenMixer>, 2>> mixers;
  std::vector<DecoderLayer> layers;
  Embedding embedding;
  OutputHead output_head;
  LossHead loss_head;
  HalfBatchRule rule;
  std::int64_t step = 0;       // of labels
  std::int64_t last_rows = 0;  // of the last pass
  double last_seconds = 0;     // the same
  std::int64_t computed_positions = 0;
  RowCounters traffic_before;  // at the last reset

  Batch last_batch;                  // of forward()
  std::array<Batch, 2> last_halves;  // of run_halves()
  Buffer<float> residual;            // [rows, hidden]
  Buffer<float> logits;              // [wanted rows, vocab]
};

Transformer::Transformer(const ModelConfig& config, const ModelWeights& weights,
                         const ExpertGroup& experts, const Compute& compute)
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

void Transformer::backward(KeptPass& kept, MatrixView<float> dx, AdapterGradients& adapters,
                           const LayerDone& layer_done) {
  impl_->backward(kept, dx, adapters, layer_done);
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
ExpertLoad Transformer::load() const noexcept {
  ExpertLoad load;
  for (const MoeWorkspace& work : impl_->context.moe) load += work.load;
  return load;
}

std::optional<std::int64_t> Transformer::damaged_by(std::int64_t row) const {
  return impl_->context.finite_rows.damaged_by(row);
}

std::int64_t Transformer::computed_positions() const noexcept {
  return impl_->computed_positions;
}

RowCounters Transformer::traffic() const {
  return impl_->moved().since(impl_->traffic_before);
}

ExpertRows Transformer::expert_rows() const {
  ExpertRows rows;
  for (std::size_t l = 0; l < impl_->config.layers.size(); ++l) {
    if (!has_experts(impl_->config, l)) continue;
    auto& sum = rows.emplace_back(static_cast<std::size_t>(impl_->config.num_experts));
    for (const MoeWorkspace& work : impl_->context.moe) {
      if (l >= work.expert_rows.size()) continue;
      std::ranges::transform(work.expert_rows[l], sum, sum.begin(), std::plus());
    }
  }
  return rows;
}

void Transformer::reset_statistics() {
  impl_->traffic_before = impl_->moved();
  impl_->computed_positions = 0;
  impl_->context.times = {};
  for (MoeWorkspace& work : impl_->context.moe) {
    work.load = {};
    work.expert_rows.clear();
  }
}

}  // namespace moesaic
