#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/counted.h"
#include "base/error.h"
#include "base/topology.h"
#include "launch/bench/bench_table.h"
#include "launch/bench/model_feed.h"
#include "launch/bench/result_printer.h"
#include "launch/bench/roofs.h"
#include "launch/bench/stored_model.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/job/verbs.h"
#include "launch/results/run_statistics.h"
#include "src/model/precision.h"

namespace moesaic {
namespace {

/// Whether experts of any rank are on a GPU. Collective.
bool uses_gpus(const Runtime& runtime, const Engine& engine) {
  std::int64_t ranks = engine.group(runtime).device != nullptr ? 1 : 0;
  runtime.world().sum({&ranks, 1});
  return ranks > 0;
}

/// CUTLASS's products take weights in an order of their own: they are arranged once.
void require_one_transformer(const Options& options) {
  require(options.gpu_kernel == GpuKernel::mma || options.thread_counts.size() <= 1,
          ErrorKind::usage, "bench model takes one number of threads with --gpu-kernel cutlass");
}

BenchModel describe(const Runtime& runtime, const OpenModel& model, const ModelFacts& facts,
                    const StoredModel& stored, bool has_gpus, Fed fed) {
  return {
      .file = runtime.options().model,
      .type = fmt::format("{} {} A{} {}", model.config.family, format_count(facts.total_parameters),
                          format_count(facts.active_parameters), stored.formats_text()),
      .bytes = stored.expert_bytes() + stored.other_bytes(),
      .parameters = facts.total_parameters,
      .cpu = read_topology().cpu_model,
      .isa = std::string(isa_name(runtime.compute().isa)),
      .has_gpus = has_gpus,
      .routing = std::string(routing_text(fed)),
      .ranks = runtime.world().size(),
      .nodes = runtime.num_nodes()};
}

/// A model that is measured with several numbers of threads.
class ModelBench {
 public:
  ModelBench(Runtime& runtime, const OpenModel& model, const std::vector<ModelTest>& tests)
      : runtime_(runtime),
        model_(model),
        tests_(tests),
        facts_(facts_of(model)),
        tokens_(runtime, model),
        engine_(runtime, model, workload(tests)),
        stored_(runtime, engine_.load()),
        has_gpus_(uses_gpus(runtime, engine_)),
        table_(result_form(runtime.options()),
               describe(runtime, model, facts_, stored_, has_gpus_, tokens_.fed())) {}

  void run() {
    const std::vector<std::int64_t>& counts = runtime_.options().thread_counts;
    runtime_.run_or_end_early("not all tests are there", [&] {
      if (counts.size() <= 1) return run_with(*runtime_.compute().pool, engine_.transformer());
      for (const std::int64_t threads : counts) {
        const std::unique_ptr<ThreadPool> pool = runtime_.make_pool(static_cast<int>(threads));
        Compute compute = runtime_.compute();
        compute.pool = pool.get();
        Transformer transformer(model_.config, engine_.weights(), engine_.group(runtime_), compute);
        run_with(*pool, transformer);
      }
    });
    const bool is_text = result_form(runtime_.options()) == ResultForm::md;
    print_results(runtime_, is_text ? fmt::format("\ntokens fed: {}\n{}",
                                                  routing_text(tokens_.fed()), roof_lines_)
                                    : table_.end());
  }

 private:
  [[nodiscard]] static Workload workload(const std::vector<ModelTest>& tests) {
    Workload work{.sequences = 1, .capacity = 0, .batch_tokens = 1, .logits_rows = 1};
    for (const ModelTest& test : tests) {
      work.capacity = std::max(work.capacity, test.tokens());
      work.batch_tokens = std::max(work.batch_tokens, std::min(test.batch, test.n_prompt));
    }
    return work;
  }

  void run_with(ThreadPool& pool, Transformer& transformer) {
    const Roofs roofs = measure_roofs(runtime_, pool, stored_.multiplied(model_.config, facts_));
    roof_lines_ +=
        fmt::format("measured roofs of all ranks, {} each: {} GFLOP/s, {} GB/s of reads\n",
                    counted(pool.size(), "thread"), short_number(roofs.flops_per_second / 1e9),
                    short_number(roofs.bytes_per_second / 1e9));
    for (const ModelTest& test : tests_) {
      BenchTest measured = measure(transformer, test);
      measured.threads = pool.size();
      print_results(runtime_, table_.add(measured, roofs));
    }
  }

  [[nodiscard]] BenchTest measure(Transformer& transformer, const ModelTest& test) const {
    const ModelConfig& config = model_.config;
    const int ranks = runtime_.world().size();
    const std::int64_t heads = test.n_gen + (test.n_prompt > 0 ? 1 : 0);
    const bool has_roofs = !has_gpus_;                            // they are those of CPUs
    const bool reads_for_each = has_roofs && test.n_prompt == 0;  // token
    return {.n_prompt = test.n_prompt,
            .n_gen = test.n_gen,
            .batch = test.batch,
            .tokens = ranks * test.tokens(),
            .seconds = time_test(runtime_, transformer, tokens_, test),
            .flops = has_roofs ? ranks * sequence_flops(config, facts_, test.tokens(), heads) : 0,
            .bytes = reads_for_each
                         ? ranks * sequence_bytes(config, stored_, runtime_.precision(), test.n_gen)
                         : 0};
  }

  Runtime& runtime_;
  const OpenModel& model_;
  const std::vector<ModelTest>& tests_;
  ModelFacts facts_;
  FeedTokens tokens_;
  Engine engine_;
  StoredModel stored_;
  bool has_gpus_;
  BenchTable table_;
  std::string roof_lines_;
};

void note_context(const Runtime& runtime, const ModelConfig& config,
                  const std::vector<ModelTest>& tests) {
  const std::int64_t most = std::ranges::max(tests, {}, &ModelTest::tokens).tokens();
  const std::string note = context_note(fmt::format("a test of {} tokens", most), most, config);
  if (!note.empty()) runtime.log().once(LogLevel::warning, "{}", note);
}

}  // namespace

void run_bench_model(Runtime& runtime) {
  std::vector<ModelTest> tests;
  agree(runtime.world(), [&] {
    tests = model_tests(runtime.options());
    require_one_transformer(runtime.options());
    (void)result_form(runtime.options());  // before anything is loaded
  });
  const OpenModel model = open_model(runtime);
  announce(runtime);
  note_context(runtime, model.config, tests);
  ModelBench(runtime, model, tests).run();
}

}  // namespace moesaic
