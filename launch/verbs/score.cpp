#include <algorithm>
#include <optional>

#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/score_input.h"
#include "launch/verbs/score_output.h"
#include "launch/verbs/verbs.h"
#include "src/generate/scorer.h"
#include "src/model/kv_pool.h"

namespace moesaic {
namespace {

StepOptions step_options(const Runtime& runtime, const ModelConfig& config, const ScoreWork& plan) {
  return {.batch_tokens = plan.work.batch_tokens,
          .parallel = plan.parallel,
          .cache_bytes = plan.work.sequences *
                         KvPool::sequence_bytes(config, runtime.precision(), plan.work.capacity),
          .stop_wanted = [&runtime] { return runtime.interruption().wanted(); }};
}

void require_one_window(const ScoreInput& input) {
  require(input.sizes.windows == 1, ErrorKind::usage,
          "--logits-out takes one text that fits into the context; there are {} windows of {} "
          "texts",
          input.sizes.windows, input.documents.size());
}

void require_undamaged(const ScoreInput& input, const std::optional<ScoreDamage>& damage) {
  if (!damage) return;
  const auto document = static_cast<std::size_t>(damage->document);
  const std::int32_t token =
      input.documents[document].tokens[static_cast<std::size_t>(damage->token)];
  fail(ErrorKind::file,
       "{}: {} gives values that are not finite at position {} (\"{}\"): damaged weights, or an "
       "overflow",
       input.labels[document].where, damage->place, damage->token, input.tokenizer->token(token));
}

}  // namespace

void run_score(Runtime& runtime) {
  const Options& options = runtime.options();
  const OpenModel model = open_model(runtime);
  const ScoreInput input = read_score_input(runtime, model);
  std::optional<LogitsFile> logits;
  std::optional<ScoreOutput> output;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    if (options.logits_out) {
      require_one_window(input);
      logits.emplace(*options.logits_out, input.documents.front().tokens, model.config.vocab_size);
    }
    output.emplace(runtime, input);
  });
  announce(runtime);
  ScoreWork plan = score_workload(options, runtime.world().size(),
                                  {.windows = input.sizes.windows,
                                   .tokens = input.sizes.tokens,
                                   .longest = input.sizes.longest});
  if (runtime.world().rank() >= input.sizes.windows) plan.work.logits_rows = 0;
  Engine engine(runtime, model, plan.work);

  ScoreEvents events;
  if (output) {
    events.on_tokens = [&](const TokenScores& scores) { output->take(scores); };
    events.on_document = [&](std::int64_t document, const DocumentScore& score) {
      output->take(document, score);
    };
  }
  if (logits) events.on_logits = [&](const LogitsRows& rows) { logits->write(rows); };
  engine.transformer().reset_statistics();
  const ScoreResult result = score(engine.transformer(), runtime.world(), input.documents,
                                   step_options(runtime, model.config, plan), events);
  agree(runtime.world(), [&] { require_undamaged(input, result.damage); });
  if (logits && result.complete) logits->finish();
  if (!result.complete) runtime.end_early(output ? output->end_early() : "");
  const RunStatistics statistics{
      .load = engine.load(),
      .prompt = {result.statistics.work.prompt_rows, result.statistics.prompt_seconds},
      .generation = {},
      .shared_tokens = result.statistics.work.shared_positions,
      .ranks = gather_statistics(runtime, engine.transformer())};
  if (output) output->finish(result.total, statistics);
}

}  // namespace moesaic
