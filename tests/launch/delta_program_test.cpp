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

/// Samples of tokens that follow a rule; one is longer than what goes back together.
std::string sample_lines() {
  std::string lines;
  for (const int length : {5, 70, 12, 9}) {
    std::string ids;
    for (int i = 0; i < length; ++i) {
      ids += (i > 0 ? ", " : "") + std::to_string(3 + (7 * length + 5 * i) % 90);
    }
    lines += R"({"input_ids": [)" + ids + R"(], "labels": [)" + ids + "]}\n";
  }
  return lines;
}

TEST(DeltaProgram, IsFineTunedToTheSameBytesOnAnyRanksAndMerged) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("models/qwen3_5_moe-v5", model);
  write_text(model + "/tokenizer.json", read_text(kData + "/models/qwen2_moe-v4/tokenizer.json"));
  const std::string data = directory.path_of("data.jsonl");
  write_text(data, sample_lines());
  const auto train = [&](int ranks, const Arguments& more) {
    const std::string out = directory.path_of("out" + std::to_string(ranks));
    Arguments arguments = {"sft",  "-m",
                           model,  "--data",
                           data,   "-o",
                           out,    "--lr",
                           "0.01", "--lora-rank",
                           "4",    "--max-steps",
                           "8",    "--global-batch-size",
                           "4",    "-t",
                           "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_ranks(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return out;
  };
  const std::string one = train(1, {});
  const std::string three = train(3, {"--recompute", "always"});
  EXPECT_EQ(read_text(three + "/adapter_model.safetensors"),
            read_text(one + "/adapter_model.safetensors"));
  const auto score = [&](const Arguments& of_model) {
    Arguments arguments = {"score", "-f", data, "--json", "-t", "1"};
    arguments.insert(arguments.end(), of_model.begin(), of_model.end());
    const ProgramResult result = run_moesaic(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    const std::string last = result.out.substr(result.out.rfind("{\"total\""));
    return Json::parse(last, "score").at("total").at("loss").as_double();
  };
  const double before = score({"-m", model});
  const double after = score({"-m", model, "--lora", one});
  EXPECT_LT(after, before - 0.5);
  const std::string merged = directory.path_of("merged");
  const ProgramResult merging =
      run_moesaic({"convert", "-m", model, "--lora", one, "--merge", "-o", merged});
  EXPECT_EQ(merging.exit_code, 0) << merging.text();
  EXPECT_NEAR(score({"-m", merged}), after, 0.02);
}

TEST(DeltaProgram, PlansItsFineTuning) {
  const ProgramResult plan = run_moesaic({"plan", "-m", kDelta, "--job", "sft", "-t", "1"});
  EXPECT_EQ(plan.exit_code, 0) << plan.text();
}

TEST(DeltaProgram, IsMeasured) {
  const ProgramResult result = run_moesaic({"bench", "model", "-m", kDelta, "--n-prompt", "16",
                                            "--n-gen", "4", "--repetitions", "1", "-t", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.text();
}

}  // namespace
}  // namespace moesaic::test
