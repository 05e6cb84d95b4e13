// Gradients of products in other precisions against those in float32, with the experts that float32
// chooses: what is left is what rounding does to numbers.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/golden_adapters.h"
#include "tests/support/quantized_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/golden_adapter.h"

namespace moesaic {
namespace {

/// |a - b| / |b|, L2, over the gradients of all adapters.
double distance(const PassResults& results, const PassResults& expected) {
  double difference = 0;
  double size = 0;
  for (const auto& [module, sums] : expected.sums) {
    const std::vector<std::int64_t>& others = results.sums.at(module);
    EXPECT_EQ(others.size(), sums.size()) << module;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double wanted = AdapterGradients::value(sums[i]);
      const double d = AdapterGradients::value(others[i]) - wanted;
      difference += d * d;
      size += wanted * wanted;
    }
  }
  return std::sqrt(difference / size);
}

/// Of `setup`, which gets the choices that float32 makes of the same model.
double distance_from_f32(const GoldenAdapter& golden, PassSetup setup) {
  ChosenExperts choices;
  const PassResults exact =
      run_pass(golden, golden.first_step(),
               {.precision = Precision::f32, .model = setup.model, .choices = &choices});
  EXPECT_EQ(choices.size(), golden.config().layers.size());
  setup.precision = Precision::bf16;
  const ChosenExperts chosen = choices;
  setup.choices = &choices;
  const PassResults results = run_pass(golden, golden.first_step(), setup);
  EXPECT_EQ(choices, chosen) << "taken as they are";
  EXPECT_EQ(results.routers.chosen, exact.routers.chosen);
  return distance(results, exact);
}

TEST(ForcedRouting, gradients_in_bf16_are_near_those_in_float32) {
  // Seen: 0.012, 0.013, 0.030, 0.010, 0.021, 0.011, 0.010, 0.009, 0.010, 0.012, 0.017, 0.023,
  // 0.013, 0.008, 0.012, 0.013, 0.023, 0.020, 0.017. Other instruction sets round otherwise.
  const std::map<std::string, double> limits = {
      {"qwen3_moe", 0.018},          {"qwen2_moe-rslora-idle", 0.020},
      {"olmoe-patterns", 0.045},     {"mixtral-some", 0.016},
      {"granitemoe-joined", 0.031},  {"mixtral-fused", 0.017},
      {"glm4_moe", 0.015},           {"hy_v3-fused", 0.015},
      {"ernie4_5_moe", 0.015},       {"gpt_oss-attention", 0.018},
      {"gpt_oss-experts4", 0.023},   {"gpt_oss-experts5", 0.030},
      {"deepseek_v3", 0.019},        {"deepseek_v3-fused", 0.011},
      {"deepseek_v2-latent", 0.017}, {"glm4_moe_lite-attention", 0.018},
      {"qwen3_next", 0.035},         {"qwen3_next-fused", 0.030},
      {"qwen3_5_moe", 0.026}};
  for (const std::string& name : test::kGoldenAdapters) {
    const double limit = limits.at(name);
    const GoldenAdapter golden(name);
    EXPECT_LE(distance_from_f32(golden, {}), limit) << name;
    EXPECT_LE(distance_from_f32(golden, {.recompute = Recompute::always}), limit) << name;
  }
}

TEST(ForcedRouting, gradients_with_quantised_experts_are_near_those_in_float32_on_the_same_values) {
  const GoldenAdapter golden("qwen3_moe");
  for (const std::string name :
       {"int8", "int4", "int4_group", "int4_group64", "int4_group128", "fp8_block", "fp8_block32",
        "fp8_channel", "nvfp4", "mxfp4", "mxfp8"}) {
    const Layout layout = *layout_from_name(name);
    const test::TemporaryDirectory directory;
    const std::string model = directory.path_of("model");
    quantize_checkpoint(golden.model(), layout, is_expert_weight, model);
    PassSetup setup{.model = model};
    if (layout.format == Format::int4) setup.layouts.experts = layout;  // of the numbers in f32
    const double seen = distance_from_f32(golden, setup);
    EXPECT_LE(seen, is_integer(layout.format) ? 6e-2 : 2e-2) << name;
    if (name != "int4_group128") continue;
    setup.int4_activations = Int4Activations::int8;
    const double with_int8 = distance_from_f32(golden, setup);
    EXPECT_GT(with_int8, seen) << "rows are rounded, too";
    EXPECT_LE(with_int8, 6e-2);
  }
}

TEST(ForcedRouting, choices_that_the_routers_make_anyway_change_no_bit) {
  const GoldenAdapter golden("olmoe-patterns");
  ChosenExperts choices;
  const PassResults expected = run_pass(golden, golden.first_step(), {.choices = &choices});
  const PassResults again = run_pass(golden, golden.first_step(), {.choices = &choices});
  EXPECT_EQ(again.losses, expected.losses);
  EXPECT_TRUE(again.sums == expected.sums);
  for (std::vector<ExpertId>& layer : choices) {
    const auto topk = static_cast<std::size_t>(golden.config().experts_per_token);
    for (std::size_t i = 0; i < layer.size(); ++i) {
      layer[i] = ExpertId{static_cast<std::int32_t>(i % topk)};
    }
  }
  EXPECT_NE(run_pass(golden, golden.first_step(), {.choices = &choices}).losses, expected.losses);
}

}  // namespace
}  // namespace moesaic
