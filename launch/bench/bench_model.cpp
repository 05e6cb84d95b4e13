#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/topology.h"
#include "launch/bench/bench_table.h"
#include "launch/bench/roofs.h"
#include "launch/job/agreement.h"
#include "launch/job/model_facts.h"
#include "launch/job/session.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/verbs.h"
#include "src/generate/step_engine.h"
#include "src/model/precision.h"

namespace moesaic {
namespace {

std::vector<std::int32_t> random_tokens(const Options& options, int rank, std::int64_t count,
                                        std::int64_t vocab_size) {
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed) * 1000003 +
                         static_cast<std::uint64_t>(rank));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

/// How the tokens of a test are fed.
struct Feed {
  std::int64_t tokens = 0;
  std::int64_t step = 1;         // of them in one forward pass
  std::int64_t logits_from = 0;  // position
};

/// Operations of one rank that feeds n tokens and wants `heads` rows of logits.
double sequence_flops(const ModelConfig& config, const ModelFacts& facts, std::int64_t n,
                      std::int64_t heads) {
  const double head = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size);
  return static_cast<double>(n) * (2.0 * static_cast<double>(facts.multiplied_parameters) - head) +
         static_cast<double>(heads) * head + mixer_work(config, Precision::bf16, n).flops;
}

/// Of the routed experts, those that a token meets.
double chosen_share(const ModelConfig& config) {
  if (config.num_experts == 0) return 0;
  return static_cast<double>(config.experts_per_token) / static_cast<double>(config.num_experts);
}

/// The weights of the whole model as they are stored.
struct StoredModel {
  WeightBytes::ByFormat experts{};
  WeightBytes::ByFormat others{};

  StoredModel(const Runtime& runtime, const LoadSummary& load)
      : experts(load.experts), others(load.others) {
    for (std::int64_t& bytes : experts) bytes /= runtime.options().expert_replicas;
  }
  /// The format that has most of `bytes`.
  [[nodiscard]] static Format main_format(const WeightBytes::ByFormat& bytes) {
    return static_cast<Format>(std::ranges::max_element(bytes) - bytes.begin());
  }
  [[nodiscard]] std::int64_t expert_bytes() const {
    return std::reduce(experts.begin(), experts.end());
  }
  [[nodiscard]] std::int64_t other_bytes() const {
    return std::reduce(others.begin(), others.end());
  }
  /// "bf16", or "int4+bf16": experts, and the rest.
  [[nodiscard]] std::string formats_text() const {
    const std::string_view expert = format_name(main_format(experts));
    const std::string_view other = format_name(main_format(others));
    return expert == other ? std::string(expert) : fmt::format("{}+{}", expert, other);
  }
  /// Parameters that a token is multiplied by, by their format.
  [[nodiscard]] std::map<Format, double> multiplied(const ModelConfig& config,
                                                    const ModelFacts& facts) const {
    const double chosen = chosen_share(config) * static_cast<double>(facts.expert_parameters);
    std::map<Format, double> parameters;
    parameters[main_format(experts)] += chosen;
    parameters[main_format(others)] += static_cast<double>(facts.multiplied_parameters) - chosen;
    return parameters;
  }
};

/// Bytes that one rank's sequence makes its experts and itself read for n tokens, one at a time.
double sequence_bytes(const ModelConfig& config, const StoredModel& stored, Precision precision,
                      std::int64_t n) {
  const auto tokens = static_cast<double>(n);
  const double chosen = chosen_share(config) * static_cast<double>(stored.expert_bytes());
  return tokens * (chosen + static_cast<double>(stored.other_bytes())) +
         mixer_work(config, precision, n).cache_bytes;
}

/// A request for every rank, which the schedule gives to rank 0, 1, ... in turn.
void run_feed(const Runtime& runtime, StepEngine& engine, const Feed& feed,
              std::int64_t vocab_size) {
  for (int rank = 0; engine.submits() && rank < runtime.world().size(); ++rank) {
    Request request;
    request.tokens = random_tokens(runtime.options(), rank, feed.tokens, vocab_size);
    request.logits_from = feed.logits_from;
    engine.submit(std::move(request));
  }
  do {
    engine.step();
  } while (engine.under_way());
}

/// Times `feed` on all ranks together, after a run that is not counted.
std::vector<double> time_feed(const Runtime& runtime, Transformer& transformer, const Feed& feed) {
  StepEngine engine(transformer, runtime.world(),
                    {.batch_tokens = feed.step, .parallel = 1, .share_prefixes = false});
  const auto run = [&] { run_feed(runtime, engine, feed, transformer.config().vocab_size); };
  run();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < runtime.options().repetitions; ++i) {
    runtime.leave_if_stop_wanted();
    seconds.push_back(time_together(runtime.world(), run));
  }
  return seconds;
}

BenchModel describe(const Runtime& runtime, const OpenModel& model, const ModelFacts& facts,
                    const StoredModel& stored) {
  const Options& options = runtime.options();
  return {
      .file = options.model,
      .type = fmt::format("{} {} A{} {}", model.config.family, format_count(facts.total_parameters),
                          format_count(facts.active_parameters), stored.formats_text()),
      .bytes = stored.expert_bytes() + stored.other_bytes(),
      .parameters = facts.total_parameters,
      .cpu = read_topology().cpu_model,
      .isa = std::string(isa_name(runtime.compute().isa)),
      .threads = runtime.self().threads,
      .ranks = runtime.world().size(),
      .nodes = runtime.num_nodes(),
      .batch = options.batch_size};
}

ModelFacts facts_of(const OpenModel& model) {
  return count_parameters(model.config, model.files.names(model.config));
}

// Of both tests every rank has a sequence of its own.

BenchTest prompt_test(const Runtime& runtime, Transformer& transformer, const ModelFacts& facts) {
  const Options& options = runtime.options();
  const std::int64_t n = options.n_prompt;
  const int ranks = runtime.world().size();
  return {.n_prompt = n,
          .tokens = ranks * n,
          .seconds = time_feed(runtime, transformer,
                               {.tokens = n, .step = options.batch_size, .logits_from = n - 1}),
          .flops = ranks * sequence_flops(transformer.config(), facts, n, 1)};
}

BenchTest generation_test(const Runtime& runtime, Transformer& transformer, const ModelFacts& facts,
                          const StoredModel& stored) {
  const ModelConfig& config = transformer.config();
  const std::int64_t n = runtime.options().n_gen;
  const int ranks = runtime.world().size();
  return {.n_gen = n,
          .tokens = ranks * n,
          .seconds = time_feed(runtime, transformer, {.tokens = n}),
          .flops = ranks * sequence_flops(config, facts, n, n),
          .bytes = ranks * sequence_bytes(config, stored, runtime.precision(), n)};
}

}  // namespace

void run_bench_model(Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    require(options.n_prompt + options.n_gen > 0, ErrorKind::usage,
            "nothing to do: --n-prompt and --n-gen are both 0");
  });
  const OpenModel model = open_model(runtime);
  announce(runtime);
  const ModelFacts facts = facts_of(model);
  const std::int64_t longest = std::max(options.n_prompt, options.n_gen);
  Engine engine(runtime, model,
                {.sequences = 1,
                 .capacity = longest,
                 .batch_tokens = std::min(options.batch_size, longest),
                 .logits_rows = 1});
  const StoredModel stored(runtime, engine.load());
  const Roofs roofs = measure_roofs(runtime, stored.multiplied(model.config, facts));
  BenchReport report{describe(runtime, model, facts, stored), roofs, {}};
  runtime.run_or_end_early("not all tests are there", [&] {
    Transformer& transformer = engine.transformer();
    if (options.n_prompt > 0) report.tests.push_back(prompt_test(runtime, transformer, facts));
    if (options.n_gen > 0) {
      report.tests.push_back(generation_test(runtime, transformer, facts, stored));
    }
  });
  if (runtime.is_first()) fmt::print("{}", bench_report(report, options.output));
}

}  // namespace moesaic
