#include "src/model/expert_choices.h"

#include <memory>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "src/model/decoder_layer.h"
#include "src/model/embedding.h"

namespace moesaic {
namespace {

/// A text on its way through the layers.
struct Passage {
  std::span<const std::int32_t> tokens;
  Buffer<float> values;  // [tokens, hidden] its residual stream
};

class LayerwisePass {
 public:
  LayerwisePass(const ModelFiles& files, const ModelConfig& config, const LayerByLayer& how)
      : files_(files),
        config_(config),
        how_(how),
        self_(std::move(make_thread_communicators(1).front())),
        placement_(ExpertPlacement(config.num_experts, 1)),
        context_(LayerContext::Setup::of(config, how.precision, how.compute,
                                         ExpertGroup(*self_, {.wire = how.wire})),
                 *self_),
        pool_(config, how.precision) {
    context_.moe.front().choices = &by_passage_;
  }

  ExpertChoices run(std::span<const std::vector<std::int32_t>> texts) {
    for (const std::vector<std::int32_t>& text : texts) add(text);
    for (std::int64_t layer = 0; layer < config_.num_layers(); ++layer) {
      run_layer(layer);
      if (how_.progress) how_.progress(layer + 1);
    }
    return std::move(choices_);
  }

 private:
  void add(const std::vector<std::int32_t>& text) {
    Passage& passage = passages_.emplace_back(Passage{.tokens = text, .values = {}});
    const std::int64_t numbers = std::ssize(text) * config_.hidden_size;
    passage.values.reserve(numbers);
    context_.normed.reserve(numbers);  // that of the largest text serves all
    context_.layer_out.reserve(numbers);
  }

  [[nodiscard]] std::unique_ptr<ModelWeights> load(std::int64_t layer) {
    LoadOptions options;
    options.precision = how_.precision;
    options.layouts = how_.layouts;
    options.placement = &placement_;
    options.node = self_.get();
    options.pool = how_.compute.pool;
    options.only_layer = layer;
    return load_model_weights(files_, config_, options);
  }

  void run_layer(std::int64_t index) {
    const std::unique_ptr<ModelWeights> weights = load(index);
    const auto at = static_cast<std::size_t>(index);
    const auto& [mixer_kind, feed_forward_kind] = config_.layers[at];
    const std::unique_ptr<TokenMixer> mixer = mixer_kind->make_mixer(context_);
    const LayerWeights& of_layer = weights->layers[at];
    DecoderLayer layer(
        {.index = index,
         .weights = of_layer,
         .mixers = {mixer.get(), nullptr},
         .feed_forward = feed_forward_kind->make_layer(of_layer.feed_forward, context_)},
        context_);
    std::vector<ExpertId> chosen;  // by all passages
    for (const Passage& passage : passages_) {
      // What the layer keeps of the text is needed no longer than that.
      Sequence sequence = pool_.make_sequence(std::ssize(passage.tokens));
      const SequenceChunk chunk{
          .sequence = &sequence, .tokens = passage.tokens, .logits = SequenceChunk::Logits::none};
      Batch batch;
      batch.fill({&chunk, 1}, config_.vocab_size);
      const MatrixView<float> x = passage.values.matrix(batch.rows(), config_.hidden_size);
      context_.finite_rows.begin(x.rows());
      if (index == 0) Embedding(config_, *weights, context_).forward(batch, x);
      mixer->begin(batch);
      by_passage_.clear();
      layer.forward({.batch = batch, .x = x});
      chosen.insert(chosen.end(), by_passage_.begin(), by_passage_.end());
      weights->files.require_read();
      require_finite(x.rows(), index);
    }
    if (!chosen.empty()) choices_.push_back(std::move(chosen));
  }

  void require_finite(std::int64_t rows, std::int64_t layer) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      require(!context_.finite_rows.damaged_by(row), ErrorKind::file,
              "{}: values are not finite after layer {}: its weights are damaged, or an overflow",
              files_.directory(), layer);
    }
  }

  const ModelFiles& files_;
  const ModelConfig& config_;
  const LayerByLayer& how_;
  std::unique_ptr<Communicator> self_;
  ModelPlacement placement_;
  LayerContext context_;
  KvPool pool_;
  std::vector<Passage> passages_;
  std::vector<ExpertId> by_passage_;  // what the layer under way chose for one
  ExpertChoices choices_;             // of the layers that were run
};

}  // namespace

ExpertChoices expert_choices(const ModelFiles& files, const ModelConfig& config,
                             std::span<const std::vector<std::int32_t>> texts,
                             const LayerByLayer& how) {
  return LayerwisePass(files, config, how).run(texts);
}

}  // namespace moesaic
