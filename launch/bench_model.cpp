#include <fmt/core.h>

#include <algorithm>
#include <random>

#include "launch/agreement.h"
#include "launch/bench_table.h"
#include "launch/model_facts.h"
#include "launch/roofs.h"
#include "launch/session.h"
#include "launch/verbs.h"
#include "src/base/error.h"
#include "src/base/topology.h"
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

/// Feeds `tokens` to an empty cache, `step` at a time; logits of the last one of each step where
/// llama-bench wants them.
void run_tokens(Transformer& transformer, KvCache& cache, std::span<const std::int32_t> tokens,
                std::int64_t step) {
  cache.truncate(0);
  const auto length = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t first = 0; first < length; first += step) {
    const std::int64_t count = std::min(step, length - first);
    const SequenceChunk chunk{
        .cache = &cache,
        .tokens = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
        .logits = step > 1 && first + count < length ? SequenceChunk::Logits::none
                                                     : SequenceChunk::Logits::last};
    transformer.forward(std::span(&chunk, 1));
  }
}

/// Operations of one rank that feeds n tokens and wants `heads` rows of logits.
double sequence_flops(const ModelConfig& config, const ModelFacts& facts, std::int64_t n,
                      std::int64_t heads) {
  const double head = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size);
  return static_cast<double>(n) * (2.0 * static_cast<double>(facts.multiplied_parameters) - head) +
         static_cast<double>(heads) * head + attention_flops(config, n);
}

/// Bytes that one rank's sequence makes its experts and itself read for n tokens, one at a time.
double sequence_bytes(const ModelConfig& config, const ModelFacts& facts, Precision precision,
                      std::int64_t n) {
  const auto element = static_cast<double>(element_bytes(precision));
  const double cache = 2.0 * static_cast<double>(config.kv_width() * config.num_layers) * element;
  const auto tokens = static_cast<double>(n);
  return tokens * static_cast<double>(facts.multiplied_parameters) * element +
         cache * tokens * (tokens + 1) / 2;
}

class Bench {
 public:
  Bench(const Runtime& runtime, Engine& engine) : runtime_(runtime), engine_(engine) {}

  /// `count` tokens of each rank, `step` at a time.
  BenchTest run(std::int64_t count, std::int64_t step) {
    Transformer& transformer = engine_.transformer();
    const std::vector<std::int32_t> tokens = random_tokens(
        runtime_.options(), runtime_.world().rank(), count, transformer.config().vocab_size);
    KvCache cache = transformer.make_cache({.capacity = count, .prompt_tokens = count});
    run_tokens(transformer, cache, tokens, step);  // warm-up
    BenchTest test{.tokens = count * runtime_.world().size()};
    for (std::int64_t i = 0; i < runtime_.options().repetitions; ++i) {
      test.seconds.push_back(
          time_together(runtime_.world(), [&] { run_tokens(transformer, cache, tokens, step); }));
    }
    return test;
  }

 private:
  const Runtime& runtime_;
  Engine& engine_;
};

BenchModel describe(const Runtime& runtime, const OpenModel& model, const ModelFacts& facts) {
  const Options& options = runtime.options();
  return {.file = options.model,
          .type = fmt::format("{} {} A{} {}", family_name(model.config.family),
                              format_count(facts.total_parameters),
                              format_count(facts.active_parameters), options.precision),
          .bytes = model.checkpoint->total_bytes(),
          .parameters = facts.total_parameters,
          .cpu = read_topology().cpu_model,
          .isa = std::string(isa_name(runtime.compute().isa)),
          .threads = runtime.self().threads,
          .ranks = runtime.world().size(),
          .nodes = runtime.num_nodes(),
          .batch = options.batch_size};
}

ModelFacts facts_of(const OpenModel& model) {
  return count_parameters(model.config, find_tensor_names(model.config, [&](std::string_view name) {
                            return model.checkpoint->contains(name);
                          }));
}

}  // namespace

void run_bench_model(Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    require(options.n_prompt + options.n_gen > 0, ErrorKind::usage,
            "nothing to do: --n-prompt and --n-gen are both 0");
  });
  const OpenModel model = open_model(runtime);
  const ModelFacts facts = facts_of(model);
  const Precision precision = options.precision == "fp32" ? Precision::f32 : Precision::bf16;
  const Roofs roofs = measure_roofs(runtime, weight_format(precision));
  Engine engine(
      runtime, model,
      {.sequences = 1,
       .capacity = std::max(options.n_prompt, options.n_gen),
       .batch_tokens = std::min(options.batch_size, std::max<std::int64_t>(1, options.n_prompt)),
       .logits_rows = 1});
  Bench bench(runtime, engine);
  const double ranks = runtime.world().size();
  std::vector<BenchTest> tests;
  if (const std::int64_t n = options.n_prompt; n > 0) {
    BenchTest& test = tests.emplace_back(bench.run(n, options.batch_size));
    test.n_prompt = n;
    test.flops = ranks * sequence_flops(model.config, facts, n, 1);
  }
  if (const std::int64_t n = options.n_gen; n > 0) {
    BenchTest& test = tests.emplace_back(bench.run(n, 1));
    test.n_gen = n;
    test.flops = ranks * sequence_flops(model.config, facts, n, n);
    test.bytes = ranks * sequence_bytes(model.config, facts, precision, n);
  }
  if (!runtime.is_first()) return;
  fmt::print("{}", bench_report({describe(runtime, model, facts), roofs, tests}, options.output));
}

}  // namespace moesaic
