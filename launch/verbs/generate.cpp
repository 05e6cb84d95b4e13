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
#include "launch/verbs/requests.h"
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

std::string completion_json(const TokenPrompts& input, const RequestList& requests,
                            const Finished& completion) {
  const RequestList::Place place = requests.place(completion.request);
  const Prompt& prompt = input.prompts[place.prompt];
  JsonWriter line;
  line.field("index", static_cast<std::int64_t>(place.prompt));
  if (place.samples > 1) line.field("sample", place.sample);
  if (!prompt.fields.id.empty()) line.raw_field("id", prompt.fields.id);
  line.field("prompt", prompt.text)
      .field("text", completion.text)
      .raw_field("ids", fmt::format("[{}]", fmt::join(completion.tokens, ", ")))
      .field("prompt_tokens", requests.prompt_tokens(place.prompt))
      .field("stop", completion.reason == StopReason::length ? "length" : "eos");
  return line.text() + "\n";
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
    choice = choose_sampling(runtime.command(), read_generation_defaults(model.files.directory()),
                             model.config.vocab_size);
  });
  return choice;
}

/// The requests of rank 0, whose demand all ranks get. Collective.
struct Job {
  RequestList requests;
  RequestList::Demand demand;
};

/// Calls `make`; an error says where it was.
SampledRequest name_place(const std::string& where, const std::function<SampledRequest()>& make) {
  try {
    return make();
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", where, error.what());
  }
}

Job plan_job(const Runtime& runtime, const ModelConfig& config, const SamplingOptions& sampling,
             TokenPrompts& input) {
  const Options& options = runtime.options();
  const RequestDefaults defaults{.sampling = sampling,
                                 .max_tokens = options.predict,
                                 .samples = options.num_return,
                                 .logprobs = {},
                                 .stop = options.stop,
                                 .stop_tokens = config.eos_token_ids,
                                 .ignore_eos = options.ignore_eos,
                                 .context_tokens = context_limit(options, config),
                                 .vocab_size = config.vocab_size};
  Job job;
  agree(runtime.world(), [&] {
    for (std::size_t i = 0; i < input.tokens.size(); ++i) {
      const Prompt& prompt = input.prompts[i];
      SampledRequest request = name_place(prompt.where, [&] {
        return make_request(prompt.fields, std::move(input.tokens[i]), static_cast<std::int64_t>(i),
                            defaults);
      });
      require_context(options, config, std::ssize(request.first.tokens),
                      request.first.max_new_tokens, prompt.where);
      job.requests.add(std::move(request));
    }
    input.tokens.clear();
  });
  job.demand = job.requests.demand();
  runtime.world().broadcast(std::as_writable_bytes(std::span(&job.demand, 1)), 0);
  return job;
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
      print_now(completion_json(input_, requests_, finished));
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

}  // namespace

void run_generate(Runtime& runtime) {
  const Options& options = runtime.options();
  const OpenModel model = open_model(runtime);
  TokenPrompts input = encode_prompts(runtime, model, [&] { return read_prompts(options); });
  const SamplingChoice sampling = choose_sampling(runtime, model);
  const Job job = plan_job(runtime, model.config, sampling.options, input);
  announce(runtime);
  runtime.log().once(LogLevel::info, "{}", sampling.text);
  const Workload work = plan_work(runtime, job.demand);
  Engine engine(runtime, model, work);

  std::optional<Output> output;
  if (runtime.is_first()) output.emplace(runtime, input, job.requests);
  engine.transformer().reset_statistics();
  StepEngine steps(engine.transformer(), runtime.world(),
                   step_options(runtime, model.config, input, work));
  const bool complete =
      run_requests(steps, output ? make_feed(job.requests, *output) : RequestFeed{});
  const StepStatistics& counts = steps.statistics();
  const RunStatistics statistics{
      .load = engine.load(),
      .prompt = {counts.work.prompt_rows, counts.prompt_seconds},
      .generation = {counts.work.generation_rows, counts.generate_seconds},
      .shared_tokens = counts.work.shared_positions,
      .ranks = gather_statistics(runtime.world(), engine.transformer())};
  if (!complete) runtime.end_early(output ? output->end_early() : "");
  if (!output) return;
  if (options.json) {
    print_now(fmt::format("{{\"statistics\": {}}}\n", statistics_json(statistics, runtime)));
  } else {
    runtime.log().once(LogLevel::info, "\n{}", statistics_text(statistics));
  }
}

}  // namespace moesaic
