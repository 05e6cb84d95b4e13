// Models with latent attention through the verbs.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/same_texts.h"
#include "tests/launch/sft_program.h"
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

/// Samples of tokens, of some lengths.
std::string write_samples(const TemporaryDirectory& directory) {
  std::string lines;
  for (int sample = 0; sample < 6; ++sample) {
    std::string ids;
    for (int i = 0; i < 9 + 4 * sample; ++i) {
      ids += (i > 0 ? "," : "") + std::to_string(3 + (7 * i + 11 * sample) % 60);
    }
    lines += "{\"input_ids\": [" + ids + "], \"labels\": [" + ids + "]}\n";
  }
  const std::string data = directory.path_of("data.jsonl");
  write_text(data, lines);
  return data;
}

/// A run into `out`.
Arguments tune(const std::string& data, const std::string& out, const Arguments& more = {}) {
  return joined({"sft", "-m", kLatent, "--data", data, "-o", out, "--lr", "0.01", "--max-steps",
                 "8", "--global-batch-size", "6", "-t", "1"},
                more);
}

TEST(LatentProgram, TrainsTheSameBytesOnAnyRanks) {
  const TemporaryDirectory directory;
  const std::string data = write_samples(directory);
  const std::string alone = directory.path_of("alone");
  expect_done(run_moesaic(tune(data, alone)));
  const auto steps = losses(alone, "step");
  EXPECT_LT(steps.back().second, steps.front().second - 0.5);
  EXPECT_NE(adapter(alone).find("layers.0.self_attn.kv_b_proj.lora_A.weight"), std::string::npos);
  const std::string out = directory.path_of("out");
  expect_done(run_ranks(3, tune(data, out, {"--recompute", "always"})));
  EXPECT_EQ(adapter(out), adapter(alone));
  expect_done(run_ranks(2, tune(data, out, {"-t", "3", "--batch-size", "40", "--overwrite"})));
  EXPECT_EQ(adapter(out), adapter(alone));
}

TEST(LatentProgram, KvBIsTrainedWithoutDropoutAlone) {
  const TemporaryDirectory directory;
  const Arguments dropout = {"--lora-dropout", "0.1"};
  const std::string refusal =
      "--lora-dropout 0.1: the adapter of model.layers.0.self_attn.kv_b_proj is trained without "
      "dropout alone";
  const std::string data = write_samples(directory);
  const std::string out = directory.path_of("out");
  expect_failure(run_ranks(2, tune(data, out, dropout)), 2, {refusal});
  expect_failure(run_moesaic(joined({"plan", "-m", kLatent, "--job", "sft"}, dropout)), 2,
                 {refusal});
  expect_done(
      run_moesaic(tune(data, out, joined(dropout, {"--lora-targets", "(?!.*kv_b_proj).*attn.*"}))));
  const std::string config = out + "/adapter_config.json";
  EXPECT_NE(read_text(config).find("\"lora_dropout\": 0.1"), std::string::npos);
}

TEST(LatentProgram, IsMeasured) {
  const ProgramResult result = run_moesaic({"bench", "model", "-m", kLatent, "--n-prompt", "16",
                                            "--n-gen", "4", "--repetitions", "1", "-t", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.text();
}

}  // namespace
}  // namespace moesaic::test
