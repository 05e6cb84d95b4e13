#include <fmt/core.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "launch/input/requests.h"
#include "launch/input/sampling_choice.h"
#include "launch/input/token_prompts.h"
#include "launch/job/agreement.h"
#include "launch/job/expert_balance.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/results/run_statistics.h"
#include "launch/verbs/arriving_prompts.h"
#include "launch/verbs/pending_requests.h"
#include "launch/verbs/result_file.h"
#include "launch/verbs/run_identity.h"
#include "launch/verbs/text_output.h"
#include "src/generate/request_feed.h"

namespace moesaic {
namespace {

SamplingChoice choose_sampling(const Runtime& runtime, const OpenModel& model) {
  SamplingChoice choice;
  agree(runtime.world(), [&] {
    const Options& options = runtime.options();
    require(options.logprobs < 0 || options.json || options.out, ErrorKind::usage,
            "--logprobs stand in the lines of --json or --out, and there is neither");
    choice = choose_sampling(runtime.command(), read_generation_defaults(model.files.directory()),
                             model.config.vocab_size);
  });
  return choice;
}

RequestDefaults request_defaults(const Options& options, const ModelConfig& config,
                                 const SamplingOptions& sampling,
                                 std::optional<std::int32_t> turn_end) {
  RequestDefaults defaults{
      .sampling = sampling,
      .max_tokens = options.predict,
      .samples = options.num_return,
      .logprobs = options.logprobs < 0 ? std::nullopt : std::optional(options.logprobs),
      .stop = options.stop,
      .stop_tokens = config.eos_token_ids,
      .ignore_eos = options.ignore_eos,
      .context_tokens = context_limit(options, config),
      .vocab_size = config.vocab_size};
  if (turn_end) defaults.stop_tokens.push_back(*turn_end);
  return defaults;
}

/// Whether prompts come while others run.
Arrival arrival_of(const Options& options) {
  const bool is_stream = options.file == "-" && !options.whole_file;
  return is_stream ? Arrival::meanwhile : Arrival::before;
}

/// The requests of rank 0; all ranks get their demand, which is returned. Collective.
RequestList::Demand list_requests(const Runtime& runtime, const ModelConfig& config,
                                  TokenPrompts& input, RequestList& requests) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    const ContextLimit limit = context_of(options, config);
    for (std::size_t i = 0; i < input.tokens.size(); ++i) {
      add_request(limit, bad_prompts(options), std::move(input.prompts[i]),
                  std::move(input.tokens[i]), requests);
    }
  });
  input.prompts.clear();
  input.tokens.clear();
  RequestList::Demand demand = requests.demand();
  runtime.world().broadcast(std::as_writable_bytes(std::span(&demand, 1)), 0);
  return demand;
}

/// Of rank 0: which requests are left, and where their texts go.
struct Texts {
  TextOutput output;
  PendingRequests pending;

  Texts(const TextOutput::Parts& parts, RequestList& requests, Arrival arrival)
      : output(parts, arrival), pending(requests, parts.file, output) {}
};

/// What rank 0 gives and hears.
RequestFeed make_feed(Texts& texts) {
  return {.next = [&] { return texts.pending.next(); },
          .on_token = [&](const NewToken& token) { texts.output.take(token); },
          .on_finished = [&](const Finished& finished) { texts.pending.take(finished); },
          .on_step = {},
          .name = [&](RequestId request) { return texts.pending.name_of(request); }};
}
RequestFeed make_feed(Texts& texts, ArrivingPrompts& arriving) {
  RequestFeed feed = make_feed(texts);
  feed.next = [&] { return arriving.next(); };
  feed.may_come = [&](bool idle) { return arriving.may_come(idle); };
  return feed;
}

/// The file of --out, if there is to be one, on rank 0. Collective.
std::unique_ptr<ResultFile> open_result_file(const Runtime& runtime, const OpenModel& model,
                                             const TokenPrompts& input,
                                             const SamplingOptions& sampling) {
  std::unique_ptr<ResultFile> file;
  agree(runtime.world(), [&] {
    if (!runtime.is_first() || !runtime.options().out) return;
    require(*runtime.options().out != "-", ErrorKind::usage,
            "--out -: a file has to be named; on the standard output --json prints the same lines");
    const std::string& directory = model.files.directory();
    file = std::make_unique<ResultFile>(
        *runtime.options().out,
        arrival_of(runtime.options()) == Arrival::before
            ? run_identity(runtime, input, directory, sampling)
            : run_identity_of_arriving(runtime, input, directory, sampling));
  });
  return file;
}

bool any_left(Communicator& world, const std::optional<Texts>& texts) {
  std::int64_t left = texts && texts->pending.has_next() ? 1 : 0;
  world.broadcast(std::as_writable_bytes(std::span(&left, 1)), 0);
  return left != 0;
}

void tell(const Runtime& runtime, const RunStatistics& statistics) {
  if (runtime.options().json) {
    fmt::print("{{\"statistics\": {}}}\n", statistics_json(statistics, runtime));
  } else {
    runtime.log().once(LogLevel::info, "\n{}", statistics_text(statistics));
  }
}

/// The prompts that came, if any, are told of.
void end_arrival(const Runtime& runtime, const RequestList& requests) {
  requests.bad().warn(runtime.log(), requests.demand().prompts, "run");
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    require(requests.demand().prompts > 0, ErrorKind::file, "{} holds no prompt: it is empty",
            input_name("-"));
    requests.bad().require_a_good_one(requests.demand().prompts);
  });
}

/// All texts are there already, or no prompt can be run, which is an error: their results are there
/// as well.
void end_without_a_run(const Runtime& runtime, const RequestList& requests,
                       std::optional<Texts>& texts) {
  const std::string finished = texts ? texts->output.end() : "";
  agree(runtime.world(), [&] { requests.bad().require_a_good_one(requests.demand().prompts); });
  runtime.log().once(LogLevel::info, "nothing is left to do: {}", finished);
}

/// What is to be run.
struct TextJob {
  const OpenModel& model;
  const TokenPrompts& input;
  RequestList& requests;
  const SamplingChoice& sampling;
  Texts* texts;  // rank 0
};

/// Runs it and tells how it went. Collective.
void run_texts(Runtime& runtime, const TextJob& job, const Workload& work) {
  const auto& [model, input, requests, sampling, texts] = job;
  const Arrival arrival = arrival_of(runtime.options());
  Engine engine(runtime, model, work);
  engine.transformer().reset_statistics();
  StepEngine steps(engine.transformer(), runtime.world(),
                   text_options(runtime, model.config, work, engine.capacity(),
                                input.tokenizer ? &*input.tokenizer : nullptr));
  RequestFeed feed = texts != nullptr ? make_feed(*texts) : RequestFeed{};
  std::optional<ArrivingPrompts> arriving;
  if (texts != nullptr && arrival == Arrival::meanwhile) {
    ContextLimit limit = context_of(runtime.options(), model.config);
    if (engine.capacity() < limit.tokens) limit = {engine.capacity(), "what memory is left for"};
    runtime.log().once(LogLevel::info,
                       "lines of {} are continued as they come; context of {} tokens",
                       input_name("-"), limit.tokens);
    const ArrivingPrompts::Parts parts{model, input, requests, texts->pending};
    arriving.emplace(runtime, parts, limit);
    feed = make_feed(*texts, *arriving);
  }
  const bool complete = run_requests(steps, feed);
  RunStatistics statistics = gather_run(runtime, engine, steps.statistics());
  statistics.sampling = sampling_json(sampling.options);
  const ExpertLoads loads(runtime, engine);
  statistics.balance = loads.balance();
  const std::string finished = texts != nullptr ? texts->output.end() : "";
  if (!complete) runtime.end_early(finished);
  if (complete && arrival == Arrival::meanwhile) end_arrival(runtime, requests);
  if (runtime.is_first()) tell(runtime, statistics);
  loads.record();
}

}  // namespace

void run_generate(Runtime& runtime) {
  const Options& options = runtime.options();
  const Arrival arrival = arrival_of(options);
  const OpenModel model = open_model(runtime);
  require_recordable(runtime);
  const auto read = [&](const InputWatch& watch) {
    require_one_input(options);
    return arrival == Arrival::before ? read_prompts(options, bad_prompts(options), watch)
                                      : std::vector<Prompt>();
  };
  TokenPrompts input = encode_prompts(runtime, model, bad_prompts(options), read);
  const SamplingChoice sampling = choose_sampling(runtime, model);
  const std::unique_ptr<ResultFile> file =
      open_result_file(runtime, model, input, sampling.options);
  RequestList requests(request_defaults(options, model.config, sampling.options, input.turn_end));
  Workload work = open_workload(options, model.config);
  if (arrival == Arrival::before) {
    const RequestList::Demand demand = list_requests(runtime, model.config, input, requests);
    requests.bad().warn(runtime.log(), requests.demand().prompts, "run");
    work = generate_workload(options, runtime.world().size(),
                             {.texts = demand.requests,
                              .longest_prompt = demand.longest_prompt,
                              .longest_text = demand.longest_text,
                              .most_samples = demand.most_samples});
  }
  std::optional<Texts> texts;
  if (runtime.is_first()) {
    const TextOutput::Parts parts{options, runtime.log(), *input.tokenizer, requests.demand(),
                                  file.get()};
    texts.emplace(parts, requests, arrival);
  }
  if (arrival == Arrival::before && !any_left(runtime.world(), texts)) {
    end_without_a_run(runtime, requests, texts);
    return;
  }
  announce(runtime);
  runtime.log().once(LogLevel::info, "{}", sampling.text);
  run_texts(runtime, {model, input, requests, sampling, texts ? &*texts : nullptr}, work);
}

}  // namespace moesaic
