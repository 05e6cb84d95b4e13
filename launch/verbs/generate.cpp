#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/json.h"
#include "base/progress.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/sampling_choice.h"
#include "launch/verbs/token_prompts.h"
#include "launch/verbs/verbs.h"
#include "src/generate/generator.h"

namespace moesaic {
namespace {

void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string completion_json(const TokenPrompts& input, std::size_t index,
                            const Finished& completion) {
  const Prompt& prompt = input.prompts[index];
  JsonWriter line;
  line.field("index", static_cast<std::int64_t>(index));
  if (!prompt.id.empty()) line.raw_field("id", prompt.id);
  line.field("prompt", prompt.text)
      .field("text", completion.text)
      .raw_field("ids", fmt::format("[{}]", fmt::join(completion.tokens, ", ")))
      .field("prompt_tokens", static_cast<std::int64_t>(input.tokens[index].size()))
      .field("stop", completion.reason == StopReason::length ? "length" : "eos");
  return line.text() + "\n";
}

/// Keys and values get the memory that the check before loading has counted.
GenerateOptions generate_options(const Runtime& runtime, const ModelConfig& config,
                                 const TokenPrompts& input, const Workload& work) {
  const Options& options = runtime.options();
  return {.max_new_tokens = options.predict,
          .batch_tokens = options.batch_size,
          .parallel = options.parallel,
          .cache_bytes =
              work.sequences * KvPool::sequence_bytes(config, runtime.precision(), work.capacity),
          .stop_tokens = options.ignore_eos ? std::vector<std::int64_t>{} : config.eos_token_ids,
          .stop_strings = options.stop,
          .sampling = {},
          .tokenizer = input.tokenizer ? &*input.tokenizer : nullptr};
}

/// Tells the launch and how is sampled.
SamplingOptions announce_sampling(const Runtime& runtime, const OpenModel& model) {
  SamplingChoice choice;
  agree(runtime.world(), [&] {
    choice = choose_sampling(runtime.command(), read_generation_defaults(model.files.directory()),
                             model.config.vocab_size);
  });
  announce(runtime);
  runtime.log().once(LogLevel::info, "{}", choice.text);
  return choice.options;
}

Workload plan_work(const Runtime& runtime, const TokenPrompts& input) {
  const Options& options = runtime.options();
  const std::int64_t requests = std::ssize(input.lengths);
  const std::int64_t ranks = runtime.world().size();
  const std::int64_t longest = input.longest();
  const std::int64_t sequences = std::min(options.parallel, (requests + ranks - 1) / ranks);
  return {.sequences = sequences,
          .capacity = longest + options.predict,
          .batch_tokens = std::min(options.batch_size, sequences * longest),
          .logits_rows = sequences};
}

/// Writes rank 0's output: one text while its tokens come; of several, each as soon as it and those
/// before it are finished.
class Output {
 public:
  Output(const Runtime& runtime, const TokenPrompts& input)
      : input_(input),
        json_(runtime.options().json),
        shows_prompts_(!runtime.options().no_display_prompt),
        streams_(!json_ && input.tokens.size() == 1),
        finished_(input.tokens.size()),
        most_tokens_(runtime.options().predict * std::ssize(input.tokens)) {
    const bool texts_are_seen = isatty(STDOUT_FILENO) != 0;  // a bar would run into them
    const bool silent = streams_ || texts_are_seen || !runtime.log().enabled(LogLevel::info);
    progress_.emplace("tokens", silent, [](std::int64_t count) { return std::to_string(count); });
    if (streams_) print_now(shown_prompt(0));
  }

  void take(const NewToken& token) {
    if (streams_) print_now(token.text);
    progress_->update(++tokens_, most_tokens_);
  }

  void take(const Finished& finished) {
    finished_[static_cast<std::size_t>(finished.request)] = finished;
    for (; written_ < finished_.size() && finished_[written_]; ++written_) {
      write(written_, *finished_[written_]);
      finished_[written_].reset();
    }
    if (written_ == finished_.size()) progress_.reset();
  }

 private:
  [[nodiscard]] std::string shown_prompt(std::size_t index) const {
    return shows_prompts_ ? input_.prompts[index].text : "";
  }

  void write(std::size_t index, const Finished& finished) {
    if (streams_) {
      print_now(finished.rest + "\n");
    } else if (json_) {
      print_now(completion_json(input_, index, finished));
    } else {
      print_now(fmt::format("{}--- prompt {} of {}\n{}{}\n", index == 0 ? "" : "\n", index + 1,
                            finished_.size(), shown_prompt(index), finished.text));
    }
  }

  const TokenPrompts& input_;
  bool json_;
  bool shows_prompts_;
  bool streams_;
  std::vector<std::optional<Finished>> finished_;  // and not yet written
  std::size_t written_ = 0;
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
  const SamplingOptions sampling = announce_sampling(runtime, model);
  const Workload work = plan_work(runtime, input);
  Engine engine(runtime, model, work);

  std::optional<Output> output;
  GenerateEvents events;
  if (runtime.is_first()) {
    output.emplace(runtime, input);
    events.on_token = [&](const NewToken& token) { output->take(token); };
    events.on_finished = [&](const Finished& finished) { output->take(finished); };
  }
  engine.transformer().reset_statistics();
  GenerateOptions generate_with = generate_options(runtime, model.config, input, work);
  generate_with.sampling = sampling;
  const GenerateResult result =
      generate(engine.transformer(), runtime.world(), input.tokens, generate_with, events);
  const StepStatistics& counts = result.statistics;
  const RunStatistics statistics{
      .load = engine.load(),
      .prompt = {counts.work.prompt_rows, counts.prompt_seconds},
      .generation = {counts.work.generation_rows, counts.generate_seconds},
      .shared_tokens = counts.work.shared_positions,
      .ranks = gather_statistics(runtime.world(), engine.transformer())};
  if (!output) return;
  if (options.json) {
    print_now(fmt::format("{{\"statistics\": {}}}\n", statistics_json(statistics, runtime)));
  } else {
    runtime.log().once(LogLevel::info, "\n{}", statistics_text(statistics));
  }
}

}  // namespace moesaic
