// Models with latent attention through the verbs.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/same_texts.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kLatent = kData + "/models/deepseek_v3-v4";

TEST(LatentProgram, InspectAndPlanTellItsSizes) {
  const ProgramResult text = run_moesaic({"inspect", kLatent});
  EXPECT_NE(text.out.find("\nheads         6 of 16 + 12, values of 32; latent of 36\n"),
            std::string::npos)
      << text.text();
  const Json json = Json::parse(run_moesaic({"inspect", kLatent, "--json"}).out, "inspect");
  EXPECT_EQ(json.at("family").as_string(), "deepseek_v3");
  EXPECT_EQ(json.at("q_lora_rank").as_int(), 28);
  EXPECT_EQ(json.at("kv_lora_rank").as_int(), 36);
  EXPECT_EQ(json.at("qk_nope_head_dim").as_int(), 16);
  EXPECT_EQ(json.at("qk_rope_head_dim").as_int(), 12);
  EXPECT_EQ(json.at("v_head_dim").as_int(), 32);
  EXPECT_EQ(json.at("unknown").size(), 0);
  const ProgramResult plan = run_moesaic({"plan", "-m", kLatent, "--ranks", "2", "-t", "1"});
  EXPECT_EQ(plan.exit_code, 0) << plan.text();
}

TEST(LatentProgram, TextsAreTheSameOnAnyRanksAndFromPackedWeights) {
  expect_same_texts("models/deepseek_v3-v4", R"({"prompt": [5, 17, 30, 42, 8]})"
                                             "\n"
                                             R"({"prompt": [77]})"
                                             "\n");
}

TEST(LatentProgram, FineTuningIsRefusedBeforeDataIsRead) {
  const TemporaryDirectory directory;
  const std::string refusal =
      "models of family deepseek_v3 cannot be trained: layer 0 (heads: 6 of 16 + 12, values of 32; "
      "latent of 36) has no backward pass";
  expect_failure(run_ranks(2, {"sft", "-m", kLatent, "--data", directory.path_of("none"), "-o",
                               directory.path_of("out")}),
                 2, {kLatent, refusal});
  expect_failure(run_moesaic({"plan", "-m", kLatent, "--job", "sft"}), 2, {refusal});
  expect_failure(run_moesaic({"bench", "sft", "-m", kLatent}), 2, {refusal});
}

TEST(LatentProgram, IsMeasured) {
  const ProgramResult result = run_moesaic({"bench", "model", "-m", kLatent, "--n-prompt", "16",
                                            "--n-gen", "4", "--repetitions", "1", "-t", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.text();
}

}  // namespace
}  // namespace moesaic::test
