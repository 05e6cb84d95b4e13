// --lora and moesaic convert --lora as a user meets them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "src/checkpoint/safetensors.h"
#include "tests/launch/program.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kModel = kData + "/models/qwen2_moe-v4";
const std::string kAdapter = kData + "/adapters/qwen2_moe-rslora-idle";

class AdapterProgram : public testing::Test {
 protected:
  AdapterProgram() { write_text(text_, "the quick brown fox jumps over the lazy dog"); }

  /// The bytes of the logits that `moesaic score` writes.
  [[nodiscard]] std::string score(int ranks, const std::string& model,
                                  const Arguments& more) const {
    const std::string file = directory_.path_of("logits");
    const ProgramResult result =
        run_ranks(ranks, joined({"score", "-m", model, "-f", text_, "--logits-out", file}, more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return result.exit_code == 0 ? read_text(file) : "";
  }
  [[nodiscard]] ProgramResult convert(int ranks, const std::string& out,
                                      const Arguments& more) const {
    return run_ranks(ranks, joined({"convert", "-m", kModel, "-o", out}, more));
  }
  /// A copy of the adapter whose configuration says something else.
  [[nodiscard]] std::string changed(const std::string& from, const std::string& to) const {
    const std::string copy = directory_.path_of("changed");
    std::filesystem::create_directories(copy);
    write_text(copy + "/adapter_config.json",
               replaced(read_text(kAdapter + "/adapter_config.json"), from, to));
    write_text(copy + "/adapter_model.safetensors",
               read_text(kAdapter + "/adapter_model.safetensors"));
    return copy;
  }

  TemporaryDirectory directory_;
  std::string text_ = directory_.path_of("text.txt");
};

TEST_F(AdapterProgram, LogitsAreTheSameOnAnyRanksInBothLayoutsAndOfConvertedModels) {
  const std::string expected = score(1, kModel, {"--lora", kAdapter});
  EXPECT_FALSE(expected == score(1, kModel, {}));
  EXPECT_TRUE(expected == score(4, kModel, {"--lora", kAdapter}));
  const std::string fused = directory_.path_of("fused");
  const ProgramResult result =
      convert(2, fused, {"--lora", kAdapter, "--adapter-layout", "transformers5"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(
      result.out.find("an adapter: rank 3, scale 1.1547005, layout transformers5, numbers 18,072"),
      std::string::npos)
      << result.out;
  EXPECT_TRUE(expected == score(3, kModel, {"--lora", fused}));
  // What is told is of what was written.
  const ProgramResult told =
      convert(1, directory_.path_of("told"),
              {"--lora", kAdapter, "--adapter-layout", "transformers5", "--json"});
  const ProgramResult seen = run_moesaic({"inspect", "-m", kModel, "--lora", fused, "--json"});
  const Json written = Json::parse(told.out, "convert");
  const Json inspected = Json::parse(seen.out, "inspect").at("adapter");
  EXPECT_EQ(written.at("adapter").at("layout").as_string(), "transformers5");
  EXPECT_EQ(written.at("bytes").as_int(), inspected.at("bytes").as_int());
  const std::string packed = directory_.path_of("packed");
  ASSERT_EQ(convert(1, packed, {}).exit_code, 0);
  EXPECT_TRUE(expected == score(2, packed, {"--lora", kAdapter}));
}

TEST_F(AdapterProgram, MergedCheckpointsAreTheSameOnAnyRanks) {
  const std::string one = directory_.path_of("one");
  const std::string three = directory_.path_of("three");
  for (const auto& [ranks, out] : {std::pair(1, one), std::pair(3, three)}) {
    const ProgramResult result = convert(ranks, out, {"--lora", kAdapter, "--merge"});
    ASSERT_EQ(result.exit_code, 0) << result.text();
  }
  EXPECT_TRUE(contents(one) == contents(three));
  EXPECT_EQ(contents(one).count("tokenizer.json"), 1U);
  EXPECT_EQ(run_moesaic({"inspect", one}).exit_code, 0);
  EXPECT_FALSE(score(2, one, {}) == score(1, kModel, {}));
  expect_failure(convert(1, one, {"--lora", kAdapter, "--merge"}), 2, {one, "not empty"});
}

TEST_F(AdapterProgram, AMergeThatIsInterruptedLeavesNothing) {
  const std::string out = directory_.path_of("out");
  for (const int ranks : {1, 3}) {
    const ProgramResult result =
        convert(ranks, out, {"--lora", kAdapter, "--merge", "--max-time", "0s"});
    EXPECT_EQ(result.exit_code, 6) << result.text();
    EXPECT_NE(result.err.find("nothing is written"), std::string::npos) << result.err;
    const auto left = std::filesystem::directory_iterator(directory_.path());
    EXPECT_EQ(std::distance(begin(left), end(left)), 1) << "the text alone";
  }
}

TEST_F(AdapterProgram, WhatConversionsMadeIsReplacedOnRequestAndNothingElse) {
  const std::string out = directory_.path_of("out");
  const Arguments merge = {"--lora", kAdapter, "--merge"};
  const Arguments lay_out = {"--lora", kAdapter, "--adapter-layout", "transformers5"};
  const Arguments overwrite = {"--overwrite"};
  ASSERT_EQ(convert(1, out, merge).exit_code, 0);
  const auto merged = contents(out);
  for (const Arguments& next : {merge, lay_out, lay_out, Arguments{}, merge}) {
    expect_failure(convert(1, out, next), 2, {out, "--overwrite"});
    const ProgramResult result = convert(2, out, joined(next, overwrite));
    ASSERT_EQ(result.exit_code, 0) << result.text();
  }
  EXPECT_TRUE(contents(out) == merged) << "nothing is left of what was there between";
  EXPECT_FALSE(std::filesystem::exists(out + ".part"));

  const std::string foreign = directory_.path_of("foreign");  // as PEFT and transformers write
  std::filesystem::create_directories(foreign);
  for (const std::string name : {"adapter_config.json", "adapter_model.safetensors"}) {
    write_text(foreign + "/" + name, read_text(kAdapter + "/" + name));
  }
  write_text(foreign + "/config.json", read_text(kModel + "/config.json"));
  const auto before = contents(foreign);
  for (const Arguments& next : {merge, lay_out}) {
    expect_failure(convert(1, foreign, joined(next, overwrite)), 2,
                   {foreign, "not made by moesaic convert"});
  }
  EXPECT_TRUE(contents(foreign) == before);
}

TEST_F(AdapterProgram, InspectTellsWhatAnAdapterHas) {
  const ProgramResult result = run_moesaic({"inspect", kModel, "--lora", kAdapter});
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.out.find("adapter       rank 3, scale 1.1547005"), std::string::npos)
      << result.out;
  const ProgramResult json = run_moesaic({"inspect", kModel, "--lora", kAdapter, "--json"});
  EXPECT_NE(json.out.find("\"layout\": \"transformers4\""), std::string::npos) << json.out;
}

/// A tensor of 64-bit integers as a JSON array.
std::string numbers_of(const TensorView& tensor) {
  std::string text;
  for (std::size_t at = 0; at < tensor.bytes.size(); at += 8) {
    std::int64_t number = 0;
    std::memcpy(&number, tensor.bytes.data() + at, 8);
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return "[" + text + "]";
}

TEST_F(AdapterProgram, TrainingGoesOnFromAnAdapterInItsLayout) {
  const SafetensorsFile golden = SafetensorsFile::open(kAdapter + "/golden.safetensors");
  std::string samples;
  for (const std::string number : {"0", "1"}) {
    samples += "{\"input_ids\": " + numbers_of(*golden.find("input_ids." + number)) +
               ", \"labels\": " + numbers_of(*golden.find("labels." + number)) + "}\n";
  }
  write_text(directory_.path_of("data.jsonl"), samples);
  float loss = 0;  // of PEFT's first step over these two
  std::memcpy(&loss, golden.find("losses")->bytes.data(), 4);
  const std::string fused = directory_.path_of("fused");
  ASSERT_EQ(convert(1, fused, {"--lora", kAdapter, "--adapter-layout", "transformers5"}).exit_code,
            0);
  for (const std::string& lora : {kAdapter, fused}) {
    const std::string out = directory_.path_of("out");
    std::filesystem::remove_all(out);
    const ProgramResult result = run_ranks(
        2, {"sft", "-m", kModel, "--data", directory_.path_of("data.jsonl"), "--lora", lora, "-o",
            out, "--max-steps", "1", "--global-batch-size", "2", "--precision", "fp32"});
    ASSERT_EQ(result.exit_code, 0) << result.text();
    for (const std::string& line : lines_of(read_text(out + "/metrics.jsonl"))) {
      const Json event = Json::parse(line, "metrics.jsonl");
      if (event.at("event").as_string() != "step") continue;
      EXPECT_NEAR(event.at("loss").as_double(), loss, 1e-4);
      EXPECT_EQ(event.at("step").as_int(), 1);
    }
    const auto keys = [](const std::string& directory) {
      std::vector<std::string> names;
      const SafetensorsFile file = SafetensorsFile::open(directory + "/adapter_model.safetensors");
      for (const TensorView& tensor : file.tensors()) names.push_back(tensor.name);
      std::ranges::sort(names);
      return names;
    };
    EXPECT_EQ(keys(out), keys(lora));
  }
}

TEST_F(AdapterProgram, OptionsOfNewAdaptersMayNotContradictTheOneThatTrainingGoesOnFrom) {
  write_text(directory_.path_of("data.jsonl"), "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
  const auto train = [&](const Arguments& more) {
    return run_ranks(
        2, joined({"sft", "-m", kModel, "--data", directory_.path_of("data.jsonl"), "--lora",
                   kAdapter, "-o", directory_.path_of("out"), "--max-steps", "1", "--overwrite"},
                  more));
  };
  const Arguments its = {"--lora-rank", "3", "--lora-alpha", "2", "--rslora"};
  EXPECT_EQ(train(its).exit_code, 0) << train(its).text();
  expect_failure(train({"--lora-rank", "5"}), 2, {"--lora-rank", "--lora has"});
  expect_failure(train({"--lora-alpha", "4"}), 2, {"--lora-alpha"});
  expect_failure(train({"--lora-targets", "experts"}), 2, {"--lora-targets"});
}

TEST_F(AdapterProgram, ValuesThatAreNotFiniteAreRefusedByAllThatReadThem) {
  const std::string lora = changed("\"lora_alpha\": 2", "\"lora_alpha\": 200");
  const auto with_last_value = [&](float value) {
    std::string bytes = read_text(lora + "/adapter_model.safetensors");
    std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
    write_text(lora + "/adapter_model.safetensors", bytes);
  };
  const std::string out = directory_.path_of("out");
  with_last_value(3e38F);  // which is finite, until it is in a matrix
  EXPECT_EQ(run_moesaic({"inspect", kModel, "--lora", lora}).exit_code, 0);
  expect_failure(
      convert(2, out, {"--lora", lora, "--merge"}), 3,
      {"tensor \"model.layers.2.self_attn.v_proj.weight\": row 11, with the adapter in it, "
       "has a value that is not finite in bf16"});
  with_last_value(std::numeric_limits<float>::quiet_NaN());
  for (const Arguments& reading :
       {Arguments{"inspect", kModel, "--lora", lora},
        Arguments{"score", "-m", kModel, "-f", text_, "--lora", lora},
        Arguments{"convert", "-m", kModel, "-o", out, "--lora", lora, "--merge"}}) {
    expect_failure(run_moesaic(reading), 3,
                   {"layers.2.self_attn.v_proj.lora_B.weight\" holds a value that is not finite"});
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(AdapterProgram, WhatCannotBeIsRefused) {
  const std::string out = directory_.path_of("out");
  expect_failure(convert(1, out, {"--lora", kAdapter}), 2, {"--merge", "--adapter-layout"});
  expect_failure(convert(2, out, {"--merge"}), 2, {"--lora"});
  expect_failure(
      convert(1, out, {"--lora", kAdapter, "--merge", "--adapter-layout", "transformers4"}), 2,
      {"Either"});
  expect_failure(convert(1, out, {"--lora", kAdapter, "--merge", "--expert-format", "int8"}), 2,
                 {"formats of weights"});
  const auto scored = [&](const std::string& lora, const Arguments& more) {
    return run_ranks(2, joined({"score", "-m", kModel, "-f", text_, "--lora", lora}, more));
  };
  expect_failure(scored(directory_.path_of("none"), {}), 3, {"none", "adapter_config.json"});
  expect_failure(scored(changed("\"use_dora\": false", "\"use_dora\": true"), {}), 3,
                 {"changed", "use_dora"});
  expect_failure(scored(kData + "/adapters/olmoe-patterns", {}), 3, {"olmoe-patterns"});
  expect_failure(scored(kAdapter, {"--memory-limit", "1M"}), 4, {"adapters"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace moesaic::test
