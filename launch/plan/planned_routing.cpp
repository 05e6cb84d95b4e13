#include "launch/plan/planned_routing.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "base/topology.h"
#include "kernels/cpu_features.h"
#include "launch/input/prompts.h"
#include "launch/input/token_prompts.h"
#include "src/model/expert_choices.h"

namespace moesaic {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;

/// Tokens of the text that the model is asked about: each of 128 experts is chosen some hundred
/// times.
constexpr std::int64_t kMostTokens = 4096;
constexpr std::int64_t kMostTokensTogether = 1024;

/// The beginning of --text, in texts that the model can take.
Texts read_texts(const Options& options, const OpenModel& model) {
  std::vector<std::int32_t> tokens = encode_file(model, *options.plan_text);
  tokens.resize(std::min<std::size_t>(tokens.size(), kMostTokens));
  const std::int64_t most = std::min(kMostTokensTogether, context_of(options, model.config).tokens);
  Texts texts;
  for (std::int64_t first = 0; first < std::ssize(tokens); first += most) {
    const auto begin = tokens.begin() + first;
    texts.emplace_back(begin, begin + std::min(most, std::ssize(tokens) - first));
  }
  return texts;
}

ExpertChoices ask_model(const Options& options, const OpenModel& model, const Texts& texts) {
  ThreadPool pool(read_topology().usable_cores);
  const Isa isa = supported_isas().back();
  const Compute compute{.isa = isa,
                        .vector = &find_vector_kernels(isa),
                        .pool = &pool,
                        .nvfp4_activations = options.nvfp4_activations,
                        .int4_activations = options.int4_activations};
  Progress progress("routing", options.log_level < LogLevel::info,
                    [](std::int64_t layers) { return fmt::format("{} layers", layers); });
  return expert_choices(
      model.files, model.config, texts,
      {.precision = options.precision,
       .layouts = model.layouts,
       .wire = options.wire,
       .compute = compute,
       .progress = [&](std::int64_t done) { progress.update(done, model.config.num_layers()); }});
}

}  // namespace

ExpertPopularity planned_routing(const Options& options, const PlannedModel& planned) {
  if (!options.asks_model()) {
    require(!options.plan_text, ErrorKind::usage,
            "--text {} is for --routing model, which asks the model about it",
            options.plan_text.value_or(""));
    return ExpertPopularity::from_text(options.plan_routing);
  }
  require(options.plan_text.has_value(), ErrorKind::usage,
          "--routing model: the model chooses experts for a text: --text FILE says which");
  require(planned.has_weights, ErrorKind::usage,
          "--routing model: {} has no weights here to ask; even, zipf:S or a file of "
          "--record-load do without",
          options.model);
  const OpenModel& model = planned.model;
  const Texts texts = read_texts(options, model);
  std::int64_t tokens = 0;
  for (const std::vector<std::int32_t>& text : texts) tokens += std::ssize(text);
  return ExpertPopularity::chosen(ask_model(options, model, texts), model.config.num_experts,
                                  model.config.experts_per_token,
                                  fmt::format("the model's choices for {} tokens of {}", tokens,
                                              input_name(*options.plan_text)));
}

}  // namespace moesaic
