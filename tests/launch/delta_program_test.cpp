// Models with gated delta nets through the verbs.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/launch/same_texts.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kDelta = kData + "/models/qwen3_5_moe-v5";

TEST(DeltaProgram, InspectAndPlanTellItsSizes) {
  const ProgramResult text = run_moesaic({"inspect", kDelta});
  EXPECT_NE(text.out.find("\ndelta heads   3 of 36, 1 of 18 for queries and keys\n"),
            std::string::npos)
      << text.text();
  EXPECT_NE(text.out.find("\nheads         4 of 16, 2 for keys and values; gated\n"),
            std::string::npos)
      << text.text();
  const Json json = Json::parse(run_moesaic({"inspect", kDelta, "--json"}).out, "inspect");
  EXPECT_EQ(json.at("family").as_string(), "qwen3_5_moe");
  EXPECT_EQ(json.at("linear_num_key_heads").as_int(), 1);
  EXPECT_EQ(json.at("linear_num_value_heads").as_int(), 3);
  EXPECT_EQ(json.at("linear_key_head_dim").as_int(), 18);
  EXPECT_EQ(json.at("linear_value_head_dim").as_int(), 36);
  EXPECT_EQ(json.at("linear_conv_kernel_dim").as_int(), 4);
  EXPECT_EQ(json.at("heads").as_int(), 4);
  EXPECT_EQ(json.at("unknown").size(), 0) << "what reads images is of no use";
  const ProgramResult plan = run_moesaic({"plan", "-m", kDelta, "--ranks", "2", "-t", "1"});
  EXPECT_EQ(plan.exit_code, 0) << plan.text();
}

TEST(DeltaProgram, TextsAreTheSameOnAnyRanksAndFromPackedWeights) {
  expect_same_texts("models/qwen3_next-v4",  // whose norms are whole in packed directories
                    R"({"prompt": [5, 17, 30, 42, 8], "n": 2, "temperature": 0.9})"
                    "\n"
                    R"({"prompt": [77]})"
                    "\n");
}

TEST(DeltaProgram, FineTuningIsRefusedBeforeDataIsRead) {
  const TemporaryDirectory directory;
  const std::string refusal =
      "models of family qwen3_5_moe cannot be trained: layer 0 (delta heads: 3 of 36, 1 of 18 for "
      "queries and keys) has no backward pass";
  expect_failure(run_ranks(2, {"sft", "-m", kDelta, "--data", directory.path_of("none"), "-o",
                               directory.path_of("out")}),
                 2, {kDelta, refusal});
  expect_failure(run_moesaic({"plan", "-m", kDelta, "--job", "sft"}), 2, {refusal});
}

TEST(DeltaProgram, IsMeasured) {
  const ProgramResult result = run_moesaic({"bench", "model", "-m", kDelta, "--n-prompt", "16",
                                            "--n-gen", "4", "--repetitions", "1", "-t", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.text();
}

}  // namespace
}  // namespace moesaic::test
