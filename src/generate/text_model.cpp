#include "src/generate/text_model.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/sum_order.h"
#include "src/generate/generator.h"
#include "src/model/model_files.h"
#include "src/model/model_weights.h"
#include "src/model/transformer.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

/// The best instruction set of the tile order that all ranks have.
Isa common_isa(Communicator& world) {
  std::uint64_t own = 0;
  for (const Isa isa : supported_isas()) own |= std::uint64_t{1} << static_cast<unsigned>(isa);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  Isa best = Isa::scalar;
  for (const Isa isa : supported_isas()) {
    const bool everywhere = std::ranges::all_of(
        all, [&](std::uint64_t isas) { return (isas >> static_cast<unsigned>(isa) & 1U) != 0; });
    if (everywhere && has_tile_order(isa)) best = isa;
  }
  return best;
}

std::optional<Layout> wanted_layout(const TextModelOptions& options, const std::string& name) {
  if (name == "auto") return std::nullopt;
  const std::optional<Layout> layout = layout_from_name(canonical_layout_name(name));
  require(layout.has_value(), ErrorKind::usage, "\"{}\" is not a format of weights", name);
  require(!options.full_precision, ErrorKind::usage,
          "format {} does not go with full_precision, which keeps all weights in f32", name);
  return layout;
}

WantedLayouts wanted_layouts(const TextModelOptions& options) {
  return {.experts = wanted_layout(options, options.expert_format),
          .dense = wanted_layout(options, options.dense_format),
          .head = wanted_layout(options, options.head_format)};
}

}  // namespace

struct TextModel::Parts {
  Parts(Communicator& ranks, const std::string& directory, const TextModelOptions& options)
      : world(ranks),
        files(ModelFiles::open(directory)),
        config(read_model_config(directory)),
        tokenizer(Tokenizer::from_directory(directory)),
        placement(ExpertPlacement(config.num_experts, world.size())),
        pool(options.threads),
        node(world.split_node()),
        weights(load_model_weights(
            files, config,
            {.precision = options.full_precision ? Precision::f32 : Precision::bf16,
             .layouts = wanted_layouts(options),
             .stored = {},
             .placement = &placement,
             .expert_rank = world.rank(),
             .node = node.get(),
             .world = &world,
             .pool = &pool,
             .progress = {}})),
        isa(common_isa(world)),
        transformer(config, *weights, world,
                    {.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool}) {
    pool.set_between_tasks([this] { world.progress(); }, kProgressEvery);
  }

  Communicator& world;
  ModelFiles files;
  ModelConfig config;
  Tokenizer tokenizer;
  ModelPlacement placement;
  ThreadPool pool;
  std::unique_ptr<Communicator> node;
  std::unique_ptr<ModelWeights> weights;
  Isa isa;
  Transformer transformer;
};

TextModel::TextModel(Communicator& world, const std::string& directory,
                     const TextModelOptions& options)
    : parts_(std::make_unique<Parts>(world, directory, options)) {}

TextModel::~TextModel() = default;

const Tokenizer& TextModel::tokenizer() const noexcept {
  return parts_->tokenizer;
}

std::int64_t TextModel::context_size() const noexcept {
  return parts_->config.max_position_embeddings;
}

std::vector<Continuation> TextModel::continue_texts(std::span<const std::string> prompts,
                                                    const ContinueOptions& options) {
  std::vector<std::vector<std::int32_t>> tokens;
  for (const std::string& prompt : prompts) {
    tokens.push_back(parts_->tokenizer.encode(prompt));
    const auto length = std::ssize(tokens.back());
    require(length > 0, ErrorKind::usage, "a prompt is empty");
    require(options.max_new_tokens <= context_size() - length, ErrorKind::usage,
            "a prompt of {} tokens and {} new ones exceed the context of {}", length,
            options.max_new_tokens, context_size());
  }
  const GenerateResult result =
      generate(parts_->transformer, parts_->world, tokens,
               {.max_new_tokens = options.max_new_tokens,
                .stop_tokens =
                    options.ignore_end ? std::vector<std::int64_t>{} : parts_->config.eos_token_ids,
                .stop_strings = options.stop_strings,
                .sampling = {.temperature = options.temperature,
                             .top_k = options.top_k,
                             .top_p = options.top_p,
                             .min_p = options.min_p,
                             .seed = options.seed,
                             .repetition_penalty = options.repetition_penalty,
                             .frequency_penalty = options.frequency_penalty,
                             .presence_penalty = options.presence_penalty},
                .tokenizer = &parts_->tokenizer},
               {});
  std::vector<Continuation> texts;
  for (const Finished& finished : result.completions) {
    texts.push_back({.text = finished.text,
                     .tokens = finished.tokens,
                     .ended = finished.reason != StopReason::length});
  }
  return texts;
}

}  // namespace moesaic
