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

/// What the ranks work on at a time: windows enough to fill two batches, and memory for as many of
/// the longest as a batch has.
struct ScorePlan {
  std::int64_t parallel = 1;  // windows of a rank
  Workload work;              // of this rank
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

ScorePlan plan_score(const Runtime& runtime, const ScoreSizes& sizes) {
  const std::int64_t batch = runtime.options().batch_size;
  const std::int64_t windows_of_rank = ceil_div(sizes.windows, runtime.world().size());
  const std::int64_t wanted = 1 + ceil_div(2 * batch * sizes.windows, sizes.tokens);
  const std::int64_t parallel = std::min(windows_of_rank, wanted);
  const std::int64_t chunk = std::min(batch, parallel * sizes.longest);
  const bool has_work = runtime.world().rank() < sizes.windows;
  return {.parallel = parallel,
          .work = {.sequences = std::min(parallel, 1 + ceil_div(batch, sizes.longest)),
                   .capacity = sizes.longest,
                   .batch_tokens = chunk,
                   .logits_rows = has_work ? chunk : 0}};
}

StepOptions step_options(const Runtime& runtime, const ModelConfig& config, const ScorePlan& plan) {
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
  const ScorePlan plan = plan_score(runtime, input.sizes);
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
      .ranks = gather_statistics(runtime.world(), engine.transformer())};
  if (output) output->finish(result.total, statistics);
}

}  // namespace moesaic
