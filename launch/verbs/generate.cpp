#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/json.h"
#include "base/progress.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/verbs/requests.h"
#include "launch/verbs/result_record.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/sampling_choice.h"
#include "launch/verbs/token_prompts.h"
#include "launch/verbs/verbs.h"
#include "src/generate/request_feed.h"

namespace moesaic {
namespace {

void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Keys and values get the memory that the check before loading has counted.
StepOptions step_options(const Runtime& runtime, const ModelConfig& config,
                         const TokenPrompts& input, const Workload& work) {
  const Options& options = runtime.options();
  return {.batch_tokens = options.batch_size,
          .parallel = options.parallel,
          .cache_bytes =
              work.sequences * KvPool::sequence_bytes(config, runtime.precision(), work.capacity),
          .tokenizer = input.tokenizer ? &*input.tokenizer : nullptr,
          .stop_wanted = [&runtime] { return runtime.interruption().wanted(); }};
}

SamplingChoice choose_sampling(const Runtime& runtime, const OpenModel& model) {
  SamplingChoice choice;
  agree(runtime.world(), [&] {
    require(runtime.options().logprobs < 0 || runtime.options().json, ErrorKind::usage,
            "--logprobs stand in the lines of --json; there is no --json");
    choice = choose_sampling(runtime.command(), read_generation_defaults(model.files.directory()),
                             model.config.vocab_size);
  });
  return choice;
}

RequestDefaults request_defaults(const Options& options, const ModelConfig& config,
                                 const SamplingOptions& sampling) {
  return {.sampling = sampling,
          .max_tokens = options.predict,
          .samples = options.num_return,
          .logprobs = options.logprobs < 0 ? std::nullopt : std::optional(options.logprobs),
          .stop = options.stop,
          .stop_tokens = config.eos_token_ids,
          .ignore_eos = options.ignore_eos,
          .context_tokens = context_limit(options, config),
          .vocab_size = config.vocab_size};
}

/// The requests of rank 0; all ranks get their demand, which is returned. Collective.
RequestList::Demand list_requests(const Runtime& runtime, const ModelConfig& config,
                                  TokenPrompts& input, RequestList& requests) {
  agree(runtime.world(), [&] {
    for (std::size_t i = 0; i < input.tokens.size(); ++i) {
      const Prompt& prompt = input.prompts[i];
      const std::int64_t new_tokens = requests.add(prompt, std::move(input.tokens[i]));
      require_context(runtime.options(), config, requests.prompt_tokens(i), new_tokens,
                      prompt.where);
    }
  });
  input.tokens.clear();
  RequestList::Demand demand = requests.demand();
  runtime.world().broadcast(std::as_writable_bytes(std::span(&demand, 1)), 0);
  return demand;
}

Workload plan_work(const Runtime& runtime, const RequestList::Demand& demand) {
  const Options& options = runtime.options();
  const std::int64_t ranks = runtime.world().size();
  const std::int64_t sequences = std::min(options.parallel, (demand.requests + ranks - 1) / ranks);
  return {.sequences = sequences,
          .capacity = demand.longest_text,
          .batch_tokens = std::min(options.batch_size, sequences * demand.longest_prompt),
          .logits_rows = sequences};
}

/// Writes rank 0's output: one text while its tokens come; of several, each as soon as it and those
/// before it are finished.
class Output {
 public:
  Output(const Runtime& runtime, const TokenPrompts& input, const RequestList& requests)
      : input_(input),
        requests_(requests),
        json_(runtime.options().json),
        shows_prompts_(!runtime.options().no_display_prompt),
        streams_(!json_ && requests.demand().requests == 1),
        finished_(static_cast<std::size_t>(requests.demand().requests)) {
    const bool texts_are_seen = isatty(STDOUT_FILENO) != 0;  // a bar would run into them
    const bool silent = streams_ || texts_are_seen || !runtime.log().enabled(LogLevel::info);
    progress_.emplace("tokens", silent, [](std::int64_t count) { return std::to_string(count); });
    if (streams_) print_now(shown_prompt(0));
  }

  void take(const NewToken& token) {
    if (streams_) print_now(token.text);
    progress_->update(++tokens_, requests_.demand().most_new_tokens);
  }

  void take(const Finished& finished) {
    finished_[static_cast<std::size_t>(finished.request)] = finished;
    for (; written_ < finished_.size() && finished_[written_]; ++written_) {
      write(*finished_[written_]);
      finished_[written_].reset();
    }
    if (written_ == finished_.size()) progress_.reset();
  }

  /// Nothing more will come; "3 of 7 texts are finished".
  std::string end_early() {
    if (streams_ && written_ == 0) print_now("\n");
    progress_.reset();
    return fmt::format("{} of {} texts are finished", written_, finished_.size());
  }

 private:
  [[nodiscard]] std::string shown_prompt(std::size_t prompt) const {
    return shows_prompts_ ? input_.prompts[prompt].text : "";
  }

  void write(const Finished& finished) {
    const RequestList::Place place = requests_.place(finished.request);
    if (streams_) {
      print_now(finished.rest + "\n");
    } else if (json_) {
      const ResultPlace whose{input_.prompts[place.prompt], place,
                              requests_.prompt_tokens(place.prompt)};
      print_now(result_record(whose, finished, *input_.tokenizer) + "\n");
    } else {
      print_now(fmt::format("{}--- prompt {} of {}{}\n{}{}\n", finished.request == 0 ? "" : "\n",
                            place.prompt + 1, input_.prompts.size(), sample_text(place),
                            shown_prompt(place.prompt), finished.text));
    }
  }

  static std::string sample_text(const RequestList::Place& place) {
    if (place.samples == 1) return "";
    return fmt::format(", sample {} of {}", place.sample + 1, place.samples);
  }

  const TokenPrompts& input_;
  const RequestList& requests_;
  bool json_;
  bool shows_prompts_;
  bool streams_;
  std::vector<std::optional<Finished>> finished_;  // and not yet written
  std::size_t written_ = 0;
  std::optional<Progress> progress_;
  std::int64_t tokens_ = 0;
};

/// What rank 0 gives and hears.
RequestFeed make_feed(const RequestList& requests, Output& output) {
  const auto next = [&requests, number = std::int64_t{0}]() mutable -> std::optional<Request> {
    if (number == requests.demand().requests) return std::nullopt;
    return requests.request(number++);
  };
  return {.next = next,
          .on_token = [&](const NewToken& token) { output.take(token); },
          .on_finished = [&](const Finished& finished) { output.take(finished); },
          .on_logits = {}};
}

/// Collective.
RunStatistics gather_run(const Runtime& runtime, Engine& engine, const StepStatistics& counts) {
  return {.load = engine.load(),
          .prompt = {counts.work.prompt_rows, counts.prompt_seconds},
          .generation = {counts.work.generation_rows, counts.generate_seconds},
          .shared_tokens = counts.work.shared_positions,
          .ranks = gather_statistics(runtime.world(), engine.transformer())};
}

}  // namespace

void run_generate(Runtime& runtime) {
  const Options& options = runtime.options();
  const OpenModel model = open_model(runtime);
  TokenPrompts input = encode_prompts(runtime, model, [&] { return read_prompts(options); });
  const SamplingChoice sampling = choose_sampling(runtime, model);
  RequestList requests(request_defaults(options, model.config, sampling.options));
  const RequestList::Demand demand = list_requests(runtime, model.config, input, requests);
  announce(runtime);
  runtime.log().once(LogLevel::info, "{}", sampling.text);
  const Workload work = plan_work(runtime, demand);
  Engine engine(runtime, model, work);

  std::optional<Output> output;
  if (runtime.is_first()) output.emplace(runtime, input, requests);
  engine.transformer().reset_statistics();
  StepEngine steps(engine.transformer(), runtime.world(),
                   step_options(runtime, model.config, input, work));
  const bool complete = run_requests(steps, output ? make_feed(requests, *output) : RequestFeed{});
  const RunStatistics statistics = gather_run(runtime, engine, steps.statistics());
  if (!complete) runtime.end_early(output ? output->end_early() : "");
  if (!output) return;
  if (options.json) {
    print_now(fmt::format("{{\"statistics\": {}}}\n", statistics_json(statistics, runtime)));
  } else {
    runtime.log().once(LogLevel::info, "\n{}", statistics_text(statistics));
  }
}

}  // namespace moesaic
