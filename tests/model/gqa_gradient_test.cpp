#include "src/model/gqa_gradient.h"

#include <gtest/gtest.h>

#include "src/lora/adapter_gradients.h"
#include "src/model/gqa_kind.h"
#include "tests/model/gqa_problem.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

/// The gradients of the adapters' factors, one after the other, A before B.
std::vector<Doubles> factor_gradients(const GqaProblem& problem, const MixerResult& result) {
  std::vector<Doubles> out;
  std::size_t at = 0;
  for (const NaiveAdapter& adapter : problem.model.adapters) {
    for (const Doubles* factor : {&adapter.a, &adapter.b}) {
      out.emplace_back();
      for (std::size_t i = 0; i < factor->size(); ++i) {
        out.back().push_back(AdapterGradients::value(result.sums[at++]));
      }
    }
  }
  return out;
}

struct NamedConfig {
  std::string name;
  GqaConfig config;
};
std::vector<NamedConfig> gqa_configs() {
  const GqaConfig shared{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  GqaConfig per_head = shared;
  per_head.qk_norm = QkNorm::per_head;
  GqaConfig whole = shared;
  whole.qk_norm = QkNorm::whole;
  whole.clip_qkv = 1.1;
  GqaConfig clipped_heads = per_head;
  clipped_heads.clip_qkv = 1.3;
  GqaConfig biased = shared;
  biased.qkv_bias = biased.o_bias = true;
  biased.window = 3;
  GqaConfig with_sinks = shared;
  with_sinks.sinks = true;
  GqaConfig windowed_sinks = biased;
  windowed_sinks.sinks = true;
  GqaConfig gated = per_head;
  gated.gated = true;
  GqaConfig single{.num_heads = 3, .num_kv_heads = 3, .head_dim = 8};
  single.rope.rotary_dim = 4;
  GqaConfig neighbours = per_head;
  neighbours.rope.form = RotaryForm::pairs;
  return {{"shared_keys", shared},
          {"norms_of_heads", per_head},
          {"norms_of_all_and_clip", whole},
          {"clip_and_norms_of_heads", clipped_heads},
          {"biases_and_window", biased},
          {"own_keys_half_rotated", single},
          {"neighbours_rotated", neighbours},
          {"sinks", with_sinks},
          {"gates_and_norms_of_heads", gated},
          {"sinks_biases_and_window", windowed_sinks}};
}

class GqaGradientTest : public testing::TestWithParam<NamedConfig> {
 protected:
  GqaProblem problem_ = make_gqa_problem(GetParam().config, {7, 1, 5});
};

INSTANTIATE_TEST_SUITE_P(EveryKind, GqaGradientTest, testing::ValuesIn(gqa_configs()),
                         [](const auto& test) { return test.param.name; });

TEST_P(GqaGradientTest, is_what_finite_differences_give) {
  const MixerResult result = run_gqa(problem_, {});
  EXPECT_EQ(result.y, result.y_kept);
  EXPECT_LT(distance(result.y, problem_.results()), 1e-6);
  EXPECT_LT(distance(result.dx, problem_.slopes(problem_.x)), 1e-5);
  const std::vector<Doubles> gradients = factor_gradients(problem_, result);
  for (std::size_t i = 0; i < problem_.model.adapters.size(); ++i) {
    NaiveAdapter& adapter = problem_.model.adapters[i];
    EXPECT_LT(distance(gradients[2 * i], problem_.slopes(adapter.a)), 1e-5) << i;
    EXPECT_LT(distance(gradients[2 * i + 1], problem_.slopes(adapter.b)), 1e-5) << i;
  }
}

TEST_P(GqaGradientTest, in_bf16_is_near) {
  const MixerResult exact = run_gqa(problem_, {});
  for (const Isa isa : supported_isas()) {
    const MixerResult result = run_gqa(problem_, {.precision = Precision::bf16, .isa = isa});
    EXPECT_LT(distance(result.dx, as_doubles(exact.dx)), 2e-2) << isa_name(isa);
    const std::vector<Doubles> gradients = factor_gradients(problem_, result);
    const std::vector<Doubles> expected = factor_gradients(problem_, exact);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LT(distance(gradients[i], expected[i]), 2e-2) << i << " " << isa_name(isa);
    }
  }
}

TEST_P(GqaGradientTest, has_the_same_bits_with_threads_and_instruction_sets) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const MixerResult one = run_gqa(problem_, {.precision = precision});
    for (const Isa isa : tile_order_isas()) {
      const MixerResult other =
          run_gqa(problem_, {.precision = precision, .isa = isa, .threads = 3});
      EXPECT_EQ(one.dx, other.dx) << isa_name(isa);
      EXPECT_EQ(one.sums, other.sums) << isa_name(isa);
    }
  }
}

TEST_P(GqaGradientTest, has_the_same_bits_sample_by_sample) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const MixerResult all = run_gqa(problem_, {.precision = precision});
    Floats dx;
    std::vector<std::int64_t> sums(all.sums.size());
    for (std::size_t i = 0; i < problem_.samples.size(); ++i) {
      const MixerResult one = run_gqa(problem_.sample(i), {.precision = precision});
      dx.insert(dx.end(), one.dx.begin(), one.dx.end());
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += one.sums[j];
    }
    EXPECT_EQ(dx, all.dx);
    EXPECT_EQ(sums, all.sums);
  }
}

// Rows whose keys are several segments: with few heads these are cut for the threads.
TEST(LongSampleGradient, has_the_same_bits_with_any_threads) {
  GqaConfig config{.num_heads = 2, .num_kv_heads = 1, .head_dim = 6};
  for (const auto& [window, sinks] : {std::pair(0, false), {1025, false}, {0, true}}) {
    config.window = window;
    config.sinks = sinks;
    const GqaProblem problem = make_gqa_problem(config, {1030});
    const Doubles expected = problem.results();
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const MixerResult one = run_gqa(problem, {.precision = precision});
      const MixerResult other =
          run_gqa(problem, {.precision = precision, .isa = tile_order_isas().back(), .threads = 9});
      EXPECT_LT(distance(as_doubles(one.y), expected), precision == Precision::f32 ? 1e-6 : 2e-2);
      EXPECT_EQ(one.y, other.y) << window << sinks;
      EXPECT_EQ(one.y, other.y_kept) << window;
      EXPECT_EQ(one.dx, other.dx) << window;
      EXPECT_EQ(one.sums, other.sums) << window;
    }
  }
}

TEST_P(GqaGradientTest, keeps_what_the_kind_says) {
  const GqaKind kind(problem_.model.config);
  EXPECT_EQ(run_gqa(problem_, {}).kept_bytes, problem_.rows() * kind.kept_bytes());
}

}  // namespace
}  // namespace moesaic
