#include <fmt/core.h>

#include <optional>

#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/job/expert_balance.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/results/run_statistics.h"
#include "launch/verbs/run_identity.h"
#include "launch/verbs/score_input.h"
#include "launch/verbs/score_output.h"
#include "src/generate/scorer.h"
#include "src/model/kv_pool.h"

namespace moesaic {
namespace {

StepOptions step_options(const Runtime& runtime, const ModelConfig& config, const ScoreWork& plan) {
  return {.batch_tokens = plan.work.batch_tokens,
          .parallel = plan.parallel,
          .cache_bytes = KvPool::bytes_of(config, runtime.precision(), plan.work.capacity,
                                          plan.work.sequences),
          .stop_wanted = [&runtime] { return runtime.interruption().wanted(); }};
}

void require_one_window(const ScoreInput& input) {
  require(input.sizes().windows == 1, ErrorKind::usage,
          "--logits-out takes one text that fits into the context; there are {} windows of {} "
          "texts",
          input.sizes().windows, input.documents.size());
  const ScoreDocument& text = input.documents.front();
  const bool is_whole = input.documents.size() == 1 && !input.labels.front().is_pair &&
                        text.windows.front().first == 1 &&
                        text.windows.front().end == std::ssize(text.tokens);
  require(is_whole, ErrorKind::usage,
          "--logits-out takes one text that fits into the context, no pair of context and "
          "continuation");
}

/// What it has of the texts is not scored again, unless their logits are wanted too.
void open_logprobs(const Runtime& runtime, const OpenModel& model, ScoreInput& input,
                   std::optional<LogprobsFile>& file) {
  const Options& options = runtime.options();
  const RunIdentity identity =
      run_identity(runtime, inputs_checksum(input), model.files.directory());
  const bool needs_all = options.logits_out.has_value();
  file.emplace(*options.logprobs_out, identity, input,
               needs_all ? LogprobsFile::Known::dropped : LogprobsFile::Known::kept);
}

ScoreEvents events_of(ScoreOutput& output) {
  return {.on_tokens = [&](const TokenScores& scores) { output.take(scores); },
          .on_document = [&](std::int64_t document,
                             const DocumentScore& score) { output.take(document, score); },
          .on_logits = {}};
}

void require_undamaged(const ScoreInput& input, const std::optional<ScoreDamage>& damage) {
  if (!damage) return;
  const auto document = static_cast<std::size_t>(damage->document);
  const std::int32_t token =
      input.documents[document].tokens[static_cast<std::size_t>(damage->token)];
  fail(ErrorKind::file,
       "{}: {} gives values that are not finite at position {} ({}): damaged weights, or an "
       "overflow",
       input.labels[document].where, damage->place, damage->token,
       input.tokenizer ? fmt::format("\"{}\"", input.tokenizer->token(token))
                       : fmt::format("token {}", token));
}

/// What rank 0 writes.
struct Outputs {
  std::optional<LogitsFile> logits{};
  std::optional<LogprobsFile> logprobs{};
  std::optional<ScoreOutput> output{};  // refers to the log-probabilities
};

/// Collective.
void open_outputs(const Runtime& runtime, const OpenModel& model, ScoreInput& input,
                  Outputs& outputs) {
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    const Options& options = runtime.options();
    auto& [logits, logprobs, output] = outputs;
    if (options.logits_out) {
      require_one_window(input);
      logits.emplace(*options.logits_out, input.documents.front().tokens, model.config.vocab_size);
    }
    if (options.logprobs_out) open_logprobs(runtime, model, input, logprobs);
    output.emplace(runtime, input, logprobs ? &*logprobs : nullptr);
  });
}

/// Collective.
RunStatistics gather_score(const Runtime& runtime, Engine& engine, const StepStatistics& counts) {
  return {.load = engine.load(),
          .prompt = {counts.work.prompt_rows, counts.prompt_seconds},
          .generation = {},
          .shared_tokens = counts.work.shared_positions,
          .ranks = gather_statistics(runtime, engine.transformer()),
          .memory = gather_peak_memory(runtime),
          .balance = {}};
}

}  // namespace

void run_score(Runtime& runtime) {
  const Options& options = runtime.options();
  const OpenModel model = open_model(runtime);
  require_recordable(runtime);
  ScoreInput input = read_score_input(runtime, model);
  Outputs outputs;
  open_outputs(runtime, model, input, outputs);
  std::optional<LogitsFile>& logits = outputs.logits;
  std::optional<ScoreOutput>& output = outputs.output;
  ScoreSizes sizes = input.sizes();
  runtime.world().broadcast(std::as_writable_bytes(std::span(&sizes, 1)), 0);
  ScoreEvents events = output ? events_of(*output) : ScoreEvents{};
  if (sizes.windows == 0) {
    runtime.log().once(LogLevel::info, "nothing is left to do");
    if (output) output->finish(tell_known(input.documents, events), nullptr);
    return;
  }
  announce(runtime);
  ScoreWork plan =
      score_workload(options, runtime.world().size(),
                     {.windows = sizes.windows, .tokens = sizes.tokens, .longest = sizes.longest});
  if (runtime.world().rank() >= sizes.windows) plan.work.logits_rows = 0;
  Engine engine(runtime, model, plan.work);

  if (logits) events.on_logits = [&](const LogitsRows& rows) { logits->write(rows); };
  engine.transformer().reset_statistics();
  const ScoreResult result = score(engine.transformer(), runtime.world(), input.documents,
                                   step_options(runtime, model.config, plan), events);
  agree(runtime.world(), [&] { require_undamaged(input, result.damage); });
  if (logits && result.complete) logits->finish();
  if (!result.complete) runtime.end_early(output ? output->end_early() : "");
  const ExpertLoads loads(runtime, engine);
  RunStatistics statistics = gather_score(runtime, engine, result.statistics);
  statistics.balance = loads.balance();
  if (output) output->finish(result.total, &statistics);
  loads.record();
}

}  // namespace moesaic
