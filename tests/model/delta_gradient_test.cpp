// Gradients through gated delta nets, by finite differences of a definition in double precision.

#include "src/model/delta_gradient.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/model/mixer_pass.h"
#include "tests/model/naive_delta.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

using DeltaProblem = MixerProblem<NaiveDelta>;

DeltaProblem make_delta_problem(DeltaConfig config, std::vector<std::int64_t> samples) {
  config.hidden = 10;
  config.rms_norm_eps = 1e-5;
  const std::int64_t in = config.projected_width();
  const std::int64_t heads = config.value_heads;
  NaiveDelta model{.config = config,
                   .in = exact_numbers(in * config.hidden, 1, 0.5),
                   .rates = exact_numbers(2 * heads * config.hidden, 2, 0.5),
                   .out = exact_numbers(config.hidden * config.value_width(), 3, 0.5),
                   .convolution = exact_numbers(config.taps * config.channels(), 4, 0.7),
                   .decay_logs = exact_numbers(heads, 5, 0.5),
                   .step_bias = exact_numbers(heads, 6, 1),
                   .norm = exact_numbers(config.value_dim, 7, 1)};
  for (double& log : model.decay_logs) log -= 2;  // states last for some tokens
  const auto adapter = [&](DeltaWeight::Place place, std::int64_t first, std::int64_t rows,
                           std::int64_t depth) {
    const auto seed = static_cast<unsigned>(20 + 2 * model.adapters.size());
    model.adapters.push_back({.matrix = place,
                              .first_row = first,
                              .rows = rows,
                              .rank = 3,
                              .scale = 1.5,
                              .a = exact_numbers(3 * depth, seed, 0.3),
                              .b = exact_numbers(rows * 3, seed + 1, 0.3)});
  };
  if (config.form == DeltaForm::separate) {
    adapter(DeltaWeight::kIn, 0, config.channels(), config.hidden);
    adapter(DeltaWeight::kIn, config.channels(), config.value_width(), config.hidden);
    adapter(DeltaWeight::kRates, 0, heads, config.hidden);
    adapter(DeltaWeight::kRates, heads, heads, config.hidden);
  } else {
    adapter(DeltaWeight::kIn, 0, in, config.hidden);
    adapter(DeltaWeight::kRates, 0, 2 * heads, config.hidden);
  }
  adapter(DeltaWeight::kOut, 0, config.hidden, config.value_width());
  DeltaProblem problem{.model = model, .samples = std::move(samples), .x = {}, .dy = {}};
  problem.x = exact_numbers(problem.rows() * config.hidden, 8, 1);
  problem.dy = exact_numbers(problem.rows() * config.hidden, 9, 1);
  return problem;
}

MixerResult run_delta(const DeltaProblem& problem, const MixerRun& run) {
  const NaiveDelta& model = problem.model;
  const DeltaConfig& config = model.config;
  LayerBed bed(DeltaWeight::kCount, run.precision);
  bed.keep_matrix(DeltaWeight::kIn, model.in, config.hidden);
  bed.keep_f32_matrix(DeltaWeight::kRates, model.rates, config.hidden);
  bed.keep_matrix(DeltaWeight::kOut, model.out, config.value_width());
  bed.keep_vector(DeltaWeight::kConvolution, model.convolution);
  bed.keep_vector(DeltaWeight::kDecayLogs, model.decay_logs);
  bed.keep_vector(DeltaWeight::kStepBias, model.step_bias);
  bed.keep_vector(DeltaWeight::kNorm, model.norm);
  bed.add_adapters(model.adapters);
  return run_mixer(problem, std::make_shared<const DeltaKind>(config), bed, run);
}

/// Every `stride`-th of some sums, as gradients.
Floats some(std::span<const std::int64_t> sums, std::size_t stride) {
  Floats found;
  for (std::size_t i = 0; i < sums.size(); i += stride) {
    found.push_back(static_cast<float>(AdapterGradients::value(sums[i])));
  }
  return found;
}

struct NamedDelta {
  std::string name;
  DeltaConfig config;
  std::vector<std::int64_t> samples;
  std::size_t stride;  // of the elements that are compared
};
std::vector<NamedDelta> delta_problems() {
  const DeltaConfig shared{
      .key_heads = 2, .value_heads = 4, .key_dim = 6, .value_dim = 5, .taps = 4};
  DeltaConfig separate = shared;
  separate.form = DeltaForm::separate;
  const DeltaConfig wide{
      .key_heads = 1, .value_heads = 1, .key_dim = 18, .value_dim = 21, .taps = 1};
  return {{"by_key_head", shared, {7, 1, 5}, 1},
          {"separate", separate, {7, 1, 5}, 1},
          {"several_chunks", separate, {130, 64, 65}, 97},
          {"wide_heads", wide, {9, 2}, 7}};
}

class DeltaGradientOf : public testing::TestWithParam<NamedDelta> {
 protected:
  DeltaProblem problem_ = make_delta_problem(GetParam().config, GetParam().samples);
};

INSTANTIATE_TEST_SUITE_P(EveryForm, DeltaGradientOf, testing::ValuesIn(delta_problems()),
                         [](const auto& test) { return test.param.name; });

TEST_P(DeltaGradientOf, is_what_finite_differences_give) {
  const std::size_t stride = GetParam().stride;
  const MixerResult result = run_delta(problem_, {});
  EXPECT_EQ(result.y, result.y_kept);
  EXPECT_LT(relative_distance(result.y, problem_.results()), 2e-6);
  Floats dx;
  for (std::size_t i = 0; i < result.dx.size(); i += stride) dx.push_back(result.dx[i]);
  EXPECT_LT(relative_distance(dx, problem_.slopes(problem_.x, stride)), 1e-5);
  std::span<const std::int64_t> sums = result.sums;
  for (NaiveAdapter& adapter : problem_.model.adapters) {
    for (Doubles* const factor : {&adapter.a, &adapter.b}) {
      EXPECT_LT(relative_distance(some(sums.first(factor->size()), stride),
                                  problem_.slopes(*factor, stride)),
                1e-5)
          << adapter.matrix << " " << adapter.first_row;
      sums = sums.subspan(factor->size());
    }
  }
  EXPECT_TRUE(sums.empty());
}

TEST_P(DeltaGradientOf, in_bf16_is_near) {
  const MixerResult exact = run_delta(problem_, {});
  for (const Isa isa : supported_isas()) {
    const MixerResult result = run_delta(problem_, {.precision = Precision::bf16, .isa = isa});
    EXPECT_LT(relative_distance(result.dx, {exact.dx.begin(), exact.dx.end()}), 3e-2)
        << isa_name(isa);
    const Floats sums = some(exact.sums, 1);
    EXPECT_LT(relative_distance(some(result.sums, 1), {sums.begin(), sums.end()}), 3e-2)
        << isa_name(isa);
  }
}

TEST_P(DeltaGradientOf, has_the_same_bits_with_threads_and_instruction_sets) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const MixerResult one = run_delta(problem_, {.precision = precision});
    for (const Isa isa : tile_order_isas()) {
      const MixerResult other =
          run_delta(problem_, {.precision = precision, .isa = isa, .threads = 3});
      EXPECT_EQ(one.dx, other.dx) << isa_name(isa);
      EXPECT_EQ(one.sums, other.sums) << isa_name(isa);
    }
  }
}

TEST_P(DeltaGradientOf, has_the_same_bits_sample_by_sample) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const MixerResult all = run_delta(problem_, {.precision = precision});
    Floats dx;
    std::vector<std::int64_t> sums(all.sums.size());
    for (std::size_t i = 0; i < problem_.samples.size(); ++i) {
      const MixerResult one = run_delta(problem_.sample(i), {.precision = precision});
      dx.insert(dx.end(), one.dx.begin(), one.dx.end());
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += one.sums[j];
    }
    EXPECT_EQ(dx, all.dx);
    EXPECT_EQ(sums, all.sums);
  }
}

TEST_P(DeltaGradientOf, keeps_what_the_kind_says) {
  const DeltaKind kind(problem_.model.config);
  EXPECT_EQ(run_delta(problem_, {}).kept_bytes, problem_.rows() * kind.kept_bytes());
}

}  // namespace
}  // namespace moesaic
