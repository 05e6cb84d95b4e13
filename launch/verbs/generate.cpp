#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/json.h"
#include "base/progress.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/token_prompts.h"
#include "launch/verbs/verbs.h"
#include "src/generate/generator.h"

namespace moesaic {
namespace {

/// The continuations as texts. A token's text can depend on the tokens before it, so the prompt is
/// decoded too, and dropped.
class Texts {
 public:
  explicit Texts(const TokenPrompts& input) {
    for (const std::vector<std::int32_t>& prompt : input.tokens) {
      StreamDecoder& decoder = decoders_.emplace_back(*input.tokenizer);
      for (const std::int32_t token : prompt) static_cast<void>(decoder.push(token));
    }
    texts_.resize(decoders_.size());
  }

  /// The text that is new with this token.
  std::string push(std::size_t request, std::int32_t token) {
    return keep(request, decoders_[request].push(token));
  }
  /// What was held back.
  std::string finish(std::size_t request) { return keep(request, decoders_[request].finish()); }
  [[nodiscard]] const std::string& text(std::size_t request) const { return texts_[request]; }

 private:
  std::string keep(std::size_t request, std::string text) {
    texts_[request] += text;
    return text;
  }

  std::vector<StreamDecoder> decoders_;
  std::vector<std::string> texts_;
};

void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string completion_json(const TokenPrompts& input, std::size_t index,
                            const Completion& completion, const std::string& text) {
  const Prompt& prompt = input.prompts[index];
  JsonWriter line;
  line.field("index", static_cast<std::int64_t>(index));
  if (!prompt.id.empty()) line.raw_field("id", prompt.id);
  line.field("prompt", prompt.text)
      .field("text", text)
      .raw_field("ids", fmt::format("[{}]", fmt::join(completion.tokens, ", ")))
      .field("prompt_tokens", static_cast<std::int64_t>(input.tokens[index].size()))
      .field("stop", completion.reason == StopReason::length ? "length" : "eos");
  return line.text() + "\n";
}

GenerateOptions generate_options(const Options& options, const ModelConfig& config) {
  return {.max_new_tokens = options.predict,
          .batch_tokens = options.batch_size,
          .parallel = options.parallel,
          .stop_tokens = options.ignore_eos ? std::vector<std::int64_t>{} : config.eos_token_ids,
          .sampling = {.temperature = options.temp,
                       .top_k = options.top_k,
                       .top_p = options.top_p,
                       .seed = static_cast<std::uint64_t>(options.seed)}};
}

Workload plan_work(const Runtime& runtime, const TokenPrompts& input) {
  const Options& options = runtime.options();
  const auto requests = static_cast<std::int64_t>(input.tokens.size());
  const std::int64_t ranks = runtime.world().size();
  std::int64_t longest = 0;
  for (const auto& tokens : input.tokens) {
    longest = std::max(longest, static_cast<std::int64_t>(tokens.size()));
  }
  const std::int64_t sequences = std::min(options.parallel, (requests + ranks - 1) / ranks);
  return {.sequences = sequences,
          .capacity = longest + options.predict,
          .batch_tokens = std::min(options.batch_size, sequences * longest),
          .logits_rows = sequences};
}

/// Writes rank 0's output: one text while its tokens come, several at the end.
class Output {
 public:
  Output(const Runtime& runtime, const TokenPrompts& input)
      : input_(input),
        texts_(input),
        json_(runtime.options().json),
        streams_(!json_ && input.tokens.size() == 1),
        most_tokens_(runtime.options().predict * std::ssize(input.tokens)) {
    const bool silent = streams_ || !runtime.log().enabled(LogLevel::info);
    progress_.emplace("tokens", silent, [](std::int64_t count) { return std::to_string(count); });
    if (streams_) print_now(input.prompts[0].text);
  }

  void take(std::int64_t request, std::int32_t token) {
    const std::string text = texts_.push(static_cast<std::size_t>(request), token);
    if (streams_) print_now(text);
    progress_->update(++tokens_, most_tokens_);
  }

  void finish(const std::vector<Completion>& completions) {
    progress_.reset();
    for (std::size_t i = 0; i < completions.size(); ++i) {
      const std::string rest = texts_.finish(i);
      if (streams_) {
        print_now(rest + "\n");
      } else if (json_) {
        print_now(completion_json(input_, i, completions[i], texts_.text(i)));
      } else {
        print_now(fmt::format("{}--- prompt {} of {}\n{}{}\n", i == 0 ? "" : "\n", i + 1,
                              completions.size(), input_.prompts[i].text, texts_.text(i)));
      }
    }
  }

 private:
  const TokenPrompts& input_;
  Texts texts_;
  bool json_;
  bool streams_;
  std::optional<Progress> progress_;
  std::int64_t tokens_ = 0;
  std::int64_t most_tokens_;
};

}  // namespace

void run_generate(Runtime& runtime) {
  const Options& options = runtime.options();
  const OpenModel model = open_model(runtime);
  const TokenPrompts input = encode_prompts(runtime, model, [&] { return read_prompts(options); });
  agree(runtime.world(), [&] {
    for (std::size_t i = 0; runtime.is_first() && i < input.tokens.size(); ++i) {
      require_context(options, model.config, static_cast<std::int64_t>(input.tokens[i].size()),
                      options.predict, input.prompts[i].where);
    }
  });
  announce(runtime);
  Engine engine(runtime, model, plan_work(runtime, input));

  std::optional<Output> output;
  TokenCallback on_token;
  if (runtime.is_first()) {
    output.emplace(runtime, input);
    on_token = [&](std::int64_t request, std::int32_t token) { output->take(request, token); };
  }
  engine.transformer().reset_statistics();
  const GenerateResult result = generate(engine.transformer(), runtime.world(), input.tokens,
                                         generate_options(options, model.config), on_token);
  const GenerateStatistics& counts = result.statistics;
  const RunStatistics statistics{.load = engine.load(),
                                 .prompt = {counts.prompt_tokens, counts.prompt_seconds},
                                 .generation = {counts.generated_tokens, counts.generate_seconds},
                                 .ranks = gather_statistics(runtime.world(), engine.transformer())};
  if (!output) return;
  output->finish(result.completions);
  if (options.json) {
    print_now(fmt::format("{{\"statistics\": {}}}\n", statistics_json(statistics, runtime)));
  } else {
    runtime.log().once(LogLevel::info, "\n{}", statistics_text(statistics));
  }
}

}  // namespace moesaic
