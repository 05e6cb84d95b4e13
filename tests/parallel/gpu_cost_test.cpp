// The time of experts on GPUs, against closed forms: every token chooses the same eight experts.

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "src/parallel/step_cost.h"
#include "tests/parallel/cost_terms.h"
#include "tests/parallel/test_machine.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;
using test::term_seconds;
using test::test_machine;

constexpr int kLayers = 3;
constexpr double kTopk = 8;
constexpr double kHidden = 1000;
constexpr double kWeights = 3e6;  // of an expert
constexpr double kBytes = 1.5e6;  // of them

/// `on_gpus`: of each layer the first so many experts.
CostModel model_with(int on_gpus) {
  const CostLayer layer{.router = {{Format::f32, 1e4, 4e4}},
                        .expert = {{Format::int8, kWeights, kBytes}}};
  std::vector<bool> there(16);
  std::fill_n(there.begin(), on_gpus, true);
  return {.hidden = 1000,
          .num_experts = 16,
          .experts_per_token = 8,
          .wire = {.row_bytes = 2032, .tag_bytes = 32, .result_bytes = 4000},
          .layers = std::vector(kLayers, layer),
          .gpus = CostGpus{.experts = std::vector(kLayers, there)}};
}

/// Tokens choose experts 4 to 11.
ExpertPopularity middle() {
  std::vector<double> rows(16);
  std::fill_n(rows.begin() + 4, 8, 1.0);
  return ExpertPopularity::recorded(std::vector(kLayers, rows), 8, "test");
}

StepWork work_of(const CostModel& model, double rows, const CostRanks& ranks = {}) {
  return estimate_step(model, ranks, {.rows = rows}, middle()).work;
}

double seconds_of(const StepCost& cost, std::string_view prefix) {
  return std::accumulate(cost.terms.begin(), cost.terms.end(), 0.0,
                         [&](double sum, const CostTerm& term) {
                           return sum + (term.name.starts_with(prefix) ? term.seconds : 0);
                         });
}

TEST(GpuCost, is_copies_calls_and_the_longer_of_reads_and_products) {
  const CostRanks ranks{.threads = 4};
  const StepWork one = work_of(model_with(16), 1, ranks);
  const StepCost cost = step_cost(one, ranks, test_machine());
  EXPECT_NEAR(term_seconds(cost, "gpu.up"), kLayers * kHidden * 2 / 2e10, 1e-15);
  EXPECT_NEAR(term_seconds(cost, "gpu.down"), kLayers * kHidden * 4 / 1e10, 1e-15);  // sums
  EXPECT_NEAR(term_seconds(cost, "gpu.calls"), kLayers * 7 * 2e-6, 1e-15);
  EXPECT_NEAR(term_seconds(cost, "gpu.waits"), kLayers * 1e-5, 1e-15);
  EXPECT_NEAR(term_seconds(cost, "gpu.reads"), kLayers * kTopk * kBytes / 1e12, 1e-15);
  EXPECT_EQ(term_seconds(cost, "gpu.products"), -1);
  EXPECT_EQ(term_seconds(cost, "experts.int8"), -1) << "none is on the CPU";
  EXPECT_EQ(term_seconds(cost, "combine.sum"), -1) << "the GPU sums";
  EXPECT_DOUBLE_EQ(one.held_bytes, kLayers * 4e4);
  for (const CostTerm& term : cost.terms) {
    if (!term.name.starts_with("gpu.")) continue;
    EXPECT_TRUE(term.source.starts_with("machine.json: gpu.")) << term.source;
    EXPECT_EQ(term.phase, Phase::experts);
  }
  const StepCost many = step_cost(work_of(model_with(16), 4000, ranks), ranks, test_machine());
  EXPECT_NEAR(term_seconds(many, "gpu.products"), kLayers * kTopk * 4000 * 2 * kWeights / 4e14,
              1e-12);
  EXPECT_EQ(term_seconds(many, "gpu.reads"), -1);
  EXPECT_NEAR(term_seconds(many, "gpu.down"), kLayers * 4000 * kHidden * 4 / 1e10, 1e-12);
}

/// No cache holds its weights.
MachineRates cold_machine() {
  MachineRates machine = test_machine();
  machine.read_bytes_per_second = {.sizes = {1e9}, .values = {1e11}};
  return machine;
}

TEST(GpuCost, runs_beside_the_experts_of_the_cpu) {
  // Experts 4 to 7 are on the GPU, 8 to 11 on the CPU: four of each for every token.
  const CostRanks ranks{.threads = 4};
  const StepCost both = step_cost(work_of(model_with(8), 16, ranks), ranks, cold_machine());
  StepWork without = work_of(model_with(8), 16, ranks);
  const double on_cpu = kLayers * (4 * kWeights * 1e-12 + 2e-6 + 4 * 3e-6);
  const double on_gpu = kLayers * (16 * kHidden * 2 / 2e10 + 4 * 16 * kHidden * 4 / 1e10 +
                                   5 * 2e-6 + 1e-5 + 4 * kBytes / 1e12);
  ASSERT_GT(on_gpu, on_cpu);
  EXPECT_NEAR(seconds_of(both, "gpu."), on_gpu - on_cpu, 1e-12);
  EXPECT_NEAR(term_seconds(both, "experts.int8") + term_seconds(both, "experts.calls") +
                  term_seconds(both, "experts.groups"),
              on_cpu, 1e-9);
  EXPECT_NEAR(term_seconds(both, "gpu.down") / term_seconds(both, "gpu.up"), 16, 1e-9)
      << "a result of each choice";
  EXPECT_GT(term_seconds(both, "combine.sum"), 0);
  without.gpus.clear();
  EXPECT_NEAR(both.seconds() - step_cost(without, ranks, cold_machine()).seconds(), on_gpu - on_cpu,
              1e-12);
  // A slower CPU hides all of it.
  MachineRates slow = cold_machine();
  for (double& seconds : slow.products.at(Format::int8).seconds_per_weight) seconds *= 100;
  const StepCost hidden = step_cost(work_of(model_with(8), 16, ranks), ranks, slow);
  EXPECT_EQ(seconds_of(hidden, "gpu."), 0);
}

TEST(GpuCost, of_graphs_has_fewer_calls) {
  const auto calls = [](CostModel model, double rows, const CostRanks& ranks = {}) {
    model.gpus->has_graphs = true;
    double sum = 0;
    for (const StepWork::GpuLayers& layers : work_of(model, rows, ranks).gpus) sum += layers.calls;
    return sum / kLayers;
  };
  EXPECT_DOUBLE_EQ(calls(model_with(16), 1), 1);
  EXPECT_DOUBLE_EQ(calls(model_with(16), 256), 1);
  EXPECT_DOUBLE_EQ(calls(model_with(16), 257), 7);
  EXPECT_DOUBLE_EQ(calls(model_with(8), 256), 2);
  EXPECT_DOUBLE_EQ(calls(model_with(8), 257), 5);
  // Between nodes there are none, and experts run as their rows come: four on a rank here.
  EXPECT_DOUBLE_EQ(calls(model_with(16), 16, {.ranks = 2, .ranks_per_node = 1}), 4 * 5);
  CostModel hindered = model_with(16);
  hindered.gpus->may_sum = false;
  EXPECT_DOUBLE_EQ(calls(hindered, 1), 2);
}

TEST(GpuCost, is_that_of_the_gpu_with_most_to_do) {
  // Of two ranks the first has experts 0 to 7 and the second 8 to 15; those up to 9 are on GPUs.
  const CostRanks ranks{.ranks = 2, .ranks_per_node = 2};
  const StepWork work = work_of(model_with(10), 32, ranks);
  double bytes = 0;
  double up = 0;
  for (const StepWork::GpuLayers& layers : work.gpus) {
    bytes += layers.kernels.front().weight_bytes;
    up += layers.bytes_up;
  }
  EXPECT_DOUBLE_EQ(bytes, kLayers * 4 * kBytes);
  EXPECT_DOUBLE_EQ(up, kLayers * 64 * kHidden * 2) << "a row goes up once";
  double met = 0;
  for (const StepWork::Product& product : work.products) {
    if (product.phase == Phase::experts) met += product.times;
  }
  EXPECT_DOUBLE_EQ(met, kLayers * 2) << "10 and 11, on the CPU of the second";
}

TEST(GpuCost, of_what_was_not_measured_is_refused) {
  MachineRates machine = test_machine();
  CostModel model = model_with(16);
  model.layers =
      std::vector(kLayers, CostLayer{.router = {}, .expert = {{Format::nvfp4, kWeights, kBytes}}});
  model.gpus->activations = Nvfp4Activations::nvfp4;
  const StepWork work = work_of(model, 1);
  EXPECT_EQ(error_message([&] { (void)step_cost(work, {}, machine); }, ErrorKind::usage),
            "machine.json: kernels of block_scaled were not measured on a GPU (a GPU, sm_90)");
  machine.gpu.reset();
  EXPECT_EQ(error_message([&] { (void)step_cost(work, {}, machine); }, ErrorKind::usage),
            "machine.json: no GPU was measured; start moesaic doctor --measure where there is one");
}

}  // namespace
}  // namespace moesaic
