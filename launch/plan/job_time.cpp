#include "launch/plan/job_time.h"

#include <algorithm>
#include <cmath>

#include "launch/plan/cost_model.h"
#include "launch/plan/training_cost.h"

namespace moesaic {
namespace {

/// A sequence of a rank from its first token on, in passes of as many tokens as fit.
JobPass text_pass(const Options& options, const ModelConfig& config, const Workload& work,
                  std::int64_t tokens_of_text) {
  const auto all = static_cast<double>(work.sequences * tokens_of_text);
  const std::int64_t batch = std::min(work.batch_tokens, options.batch_size);
  const double passes = std::ceil(all / static_cast<double>(batch));
  const MixerWork mixing = pass_work(config, options.precision,
                                     {.sequences = work.sequences,
                                      .tokens = tokens_of_text,
                                      .at_once = std::min(tokens_of_text, batch)});
  // A pass of many rows reads the cache once for all of them, not for each.
  return {.step = {.rows = all / passes,
                   .logits_rows = static_cast<double>(work.logits_rows),
                   .attention_flops = mixing.flops / passes}};
}

/// A step over --global-batch-size samples that are as long as may be.
JobPasses training_passes(const Options& options, const OpenModel& model, const CostRanks& ranks) {
  const std::int64_t tokens = context_limit(options, model.config);
  const RankSamples samples =
      rank_samples(options.global_batch_size, tokens, ranks, options.batch_size);
  JobPasses passes{.prompt = {.step = sample_pass(options, model.config, samples, tokens)},
                   .generation = {},
                   .training = {}};
  passes.prompt.tokens = static_cast<double>(options.global_batch_size * tokens) / samples.passes;
  passes.training = training_of(
      options, adapter_numbers(trained_adapters(options, model), model.config), ranks, samples);
  return passes;
}

/// Of a text of the job, what it generates. Those of a server fill the context but for one token,
/// which takes longest.
std::int64_t new_tokens(const Options& options, std::int64_t text) {
  if (options.plan_job == PlanJob::score) return 0;
  if (options.plan_job == PlanJob::serve) return std::min<std::int64_t>(1, text - 1);
  return options.predict < 0 ? text - options.prompt_tokens : std::min(options.predict, text - 1);
}

}  // namespace

JobPasses job_passes(const Options& options, const OpenModel& model, const CostRanks& ranks,
                     Workload work) {
  if (options.plan_job == PlanJob::sft) return training_passes(options, model, ranks);
  if (options.plan_job == PlanJob::serve) work.logits_rows = work.sequences;  // few want them all
  const ModelConfig& config = model.config;
  const std::int64_t text = work.capacity;
  const std::int64_t fresh = new_tokens(options, text);
  JobPasses passes{
      .prompt = text_pass(options, config, work, std::max<std::int64_t>(text - fresh, 1)),
      .generation = {},
      .training = {}};
  passes.prompt.tokens = passes.prompt.step.rows * ranks.ranks;
  if (fresh <= 0) return passes;
  const MixerWork mixing =
      pass_work(config, options.precision,
                {.sequences = work.sequences, .first = text - fresh, .tokens = fresh});
  const auto sequences = static_cast<double>(work.sequences);
  const auto steps = static_cast<double>(fresh);
  passes.generation = JobPass{.step = {.rows = sequences,
                                       .logits_rows = sequences,
                                       .sampled_rows = sequences,
                                       .attention_flops = mixing.flops / steps,
                                       .cache_bytes = mixing.cache_bytes / steps,
                                       .texts = work.sequences * ranks.sharers()},
                              .tokens = sequences * ranks.ranks};
  return passes;
}

JobWork job_work(const JobPasses& passes, const CostModel& model, const CostRanks& ranks,
                 const ExpertPopularity& popularity) {
  JobWork work{.prompt = estimate_step(model, ranks, passes.prompt.step, popularity),
               .generation = {}};
  if (passes.generation) {
    work.generation = estimate_step(model, ranks, passes.generation->step, popularity);
  }
  return work;
}

JobTime time_job(const JobPasses& passes, const JobWork& work, const CostRanks& ranks,
                 const MachineRates& machine) {
  JobTime time;
  if (passes.training) {
    const StepWork step = training_work(work.prompt.work, passes.prompt.step, *passes.training);
    time.is_training = true;
    time.prompt = step_cost(step, ranks, machine);
    time.prompt_tokens_per_second =
        passes.training->passes * passes.prompt.tokens / time.prompt.seconds();
    return time;
  }
  time.prompt = step_cost(work.prompt.work, ranks, machine);
  time.prompt_tokens_per_second = passes.prompt.tokens / time.prompt.seconds();
  if (passes.generation) {
    time.generation = step_cost(work.generation.work, ranks, machine);
    time.generation_tokens_per_second = passes.generation->tokens / time.generation.seconds();
  }
  return time;
}

}  // namespace moesaic
