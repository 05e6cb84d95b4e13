// Fields of config.json that families of later days have: what is refused, and what counts.

#include <gtest/gtest.h>

#include "src/model/mla_kind.h"
#include "src/model/model_config.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

std::string config_of(const std::string& fixture) {
  return test::read_text(MOESAIC_TEST_DATA "/models/" + fixture + "/config.json");
}

ModelConfig parse(const std::string& config) {
  return parse_model_config(Json::parse(config, "config.json"), std::nullopt);
}

/// What is said of a fixture's config with one more field.
std::string error_with(const std::string& fixture, const std::string& field) {
  return test::error_message(
      [&] { (void)parse("{" + field + ", " + config_of(fixture).substr(1)); });
}

TEST(FamilyFields, BiasesOfMlpsAreRefused) {
  const std::string said = ": true is not supported: MLPs would have biases";
  for (const std::string fixture : {"deepseek_v2-v5", "hy_v3-v5"}) {
    const std::string config =
        test::replaced(config_of(fixture), R"("mlp_bias": false)", R"("mlp_bias": true)");
    EXPECT_EQ(test::error_message([&] { (void)parse(config); }), "config.json: mlp_bias" + said);
  }
}

TEST(FamilyFields, OfLatentAttentionDeepseekV2RotatesPairsWhateverIsSaid) {
  const auto form = [](const std::string& fixture) {
    std::string text = config_of(fixture);
    const std::string said = R"("rope_interleave": true)";
    if (text.find(said) != std::string::npos) text = test::replaced(text, said, R"("x": 1)");
    const ModelConfig config = parse("{\"rope_interleave\": false, " + text.substr(1));
    return dynamic_cast<const MlaKind&>(*config.layers.at(0).mixer).config().rope.form;
  };
  EXPECT_EQ(form("deepseek_v2-v5"), RotaryForm::pairs);
  EXPECT_EQ(form("glm4_moe_lite-v5"), RotaryForm::halves);
}

TEST(FamilyFields, Transformers4ComputesTheSameOfWhatItHasSaved) {
  const auto is_alike = [](const std::string& config) {
    return parse(config).alike_in_transformers4;
  };
  for (const std::string fixture : {"qwen3_moe-v4-yarn-window-sharded", "gpt_oss-v4",
                                    "deepseek_v3-v4", "granitemoe-v4-longrope"}) {
    EXPECT_TRUE(is_alike(config_of(fixture))) << fixture;
  }
  for (const std::string fixture : {"qwen3_moe-v5", "gpt_oss-v5", "hy_v3-v5", "deepseek_v2-v5"}) {
    EXPECT_FALSE(is_alike(config_of(fixture))) << fixture << ", saved by 5, or in 5 alone";
  }
  for (const std::string factor : {R"("swiglu_limit": 6.0, )", R"("swiglu_alpha": 1.5, )"}) {
    EXPECT_FALSE(is_alike("{" + factor + config_of("gpt_oss-v4").substr(1))) << factor;
  }
  // As version 4 saves it; it leaves the factor out of scores.
  std::string deepseek =
      test::replaced(config_of("deepseek_v2-v5"), "rope_parameters", "rope_scaling");
  EXPECT_FALSE(is_alike(deepseek));
  deepseek = test::replaced(deepseek, "mscale_all_dim", "unknown");
  EXPECT_TRUE(is_alike(deepseek));
}

TEST(FamilyFields, FactorsHaveBounds) {
  const auto glm = [](const std::string& factor) {
    const std::string config =
        test::replaced(config_of("glm4_moe-v4"), R"("routed_scaling_factor": 1.5)",
                       R"("routed_scaling_factor": )" + factor);
    return test::error_message([&] { (void)parse(config); });
  };
  const std::string said = "config.json: routed_scaling_factor: expected 0.001 to 1000000, found ";
  EXPECT_EQ(glm("1e-60"), said + "1e-60");
  EXPECT_EQ(glm("1e300"), said + "1e+300");
  const std::string ernie = test::replaced(config_of("ernie4_5_moe-v4"), R"("moe_norm_min": 1e-12)",
                                           R"("moe_norm_min": 0.9)");
  EXPECT_EQ(test::error_message([&] { (void)parse(ernie); }),
            "config.json: moe_norm_min: expected 1e-30 to 1e-06, found 0.9")
      << "weights divided by it would hang on all probabilities";
}

TEST(FamilyFields, NullIsNotTheDefaultWhereTransformersTakesItOtherwise) {
  const ModelConfig config = parse(test::replaced(
      config_of("glm4_moe-v4"), R"("norm_topk_prob": true)", R"("norm_topk_prob": null)"));
  const auto& experts = dynamic_cast<const MoeKind&>(*config.layers.at(1).feed_forward);
  EXPECT_FALSE(experts.config().router.normalize);
  const auto error = [](const std::string& fixture, const std::string& from,
                        const std::string& to) {
    const std::string text = test::replaced(config_of(fixture), from, to);
    return test::error_message([&] { (void)parse(text); });
  };
  EXPECT_EQ(
      error("glm4_moe-v4", R"("partial_rotary_factor": 0.5)", R"("partial_rotary_factor": null)"),
      "config.json: partial_rotary_factor: null: versions of transformers differ in what "
      "they rotate: leave it out, or give a number");
  EXPECT_EQ(error("dots1-v4-window", R"("sliding_window": 9)", R"("sliding_window": null)"),
            "config.json: sliding_window: null, but there are layers with a window (layer_types)");
  const std::string minimax = test::replaced(config_of("minimax_m2-v5"),
                                             R"("partial_rotary_factor": 0.6666666666666666,)", "");
  EXPECT_EQ(test::error_message([&] {
              (void)parse(test::replaced(minimax, R"("rotary_dim": 8)", R"("rotary_dim": 7)"));
            }),
            "config.json: by rotary_dim 7 of the 12 dimensions of a head are rotated; an even "
            "number above 0 is needed");
}

TEST(FamilyFields, AnotherWayToChooseIsRefused) {
  EXPECT_EQ(error_with("glm4_moe-v4", R"("scoring_func": "softmax")"),
            "config.json: scoring_func \"softmax\" is not supported in this family, only "
            "\"sigmoid\" is");
  EXPECT_EQ(error_with("glm4_moe-v4", R"("topk_method": "greedy")"),
            "config.json: topk_method \"greedy\" is not supported in this family, only "
            "\"noaux_tc\" is");
  EXPECT_EQ(error_with("minimax_m2-v5", R"("scoring_func": "softmax")"),
            "config.json: scoring_func \"softmax\" is not supported in this family, only "
            "\"sigmoid\" is");
}

}  // namespace
}  // namespace moesaic
