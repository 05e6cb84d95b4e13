// In which layout moesaic sft writes adapters: that of the transformers that reads the model alike.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

const std::string kModels = MOESAIC_TEST_DATA "/models/";

class SftLayout : public testing::Test {
 protected:
  void SetUp() override {
    write_text(data_, R"({"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8]})");
  }

  [[nodiscard]] Arguments run(const std::string& model, const Arguments& more) const {
    return joined({"sft", "-m", model, "--data", data_, "-o", out_, "--overwrite", "--max-steps",
                   "1", "--global-batch-size", "1", "--threads", "1"},
                  more);
  }
  /// That of the adapter which a run of one step writes. In layout transformers5 experts are
  /// parameters.
  [[nodiscard]] std::string written(const std::string& model, const Arguments& more = {}) const {
    const ProgramResult done = run_ranks(2, run(model, more));
    expect_done(done);
    const Json config = Json::read_file(out_ + "/adapter_config.json");
    const auto parameters = config.find("target_parameters");
    return parameters && parameters->size() > 0 ? "transformers5" : "transformers4";
  }

  TemporaryDirectory directory_;
  std::string data_ = directory_.path_of("data.jsonl");
  std::string out_ = directory_.path_of("out");
};

TEST_F(SftLayout, GoesWithTheVersionThatSavedTheModel) {
  EXPECT_EQ(written(kModels + "qwen3_moe-v4"), "transformers4");
  EXPECT_EQ(written(kModels + "qwen3_moe-v5"), "transformers5");
  EXPECT_EQ(written(kModels + "deepseek_v2-v5"), "transformers5");
}

TEST_F(SftLayout, IsThatOfTheOptionOrElseOfTheAdapterThatGoesOn) {
  const std::string before = directory_.path_of("before");
  EXPECT_EQ(written(kModels + "qwen3_moe-v4", {"--adapter-layout", "transformers5"}),
            "transformers5");
  EXPECT_EQ(written(kModels + "qwen3_moe-v5", {"--adapter-layout", "transformers4"}),
            "transformers4");
  std::filesystem::rename(out_, before);
  EXPECT_EQ(written(kModels + "qwen3_moe-v5", {"--lora", before}), "transformers4");
  EXPECT_EQ(
      written(kModels + "qwen3_moe-v5", {"--lora", before, "--adapter-layout", "transformers5"}),
      "transformers5");
}

TEST_F(SftLayout, OfTransformers4IsRefusedWhereItLacksTheFamily) {
  expect_failure(run_ranks(3, run(kModels + "hy_v3-v5", {"--adapter-layout", "transformers4"})), 2,
                 {"--adapter-layout transformers4", "hy_v3", "transformers 5 alone"});
}

TEST_F(SftLayout, ThatHasNoPlaceForTheAdapterIsRefusedBeforeItIsTrained) {
  const std::string lora = MOESAIC_TEST_DATA "/adapters/olmoe-patterns";
  expect_failure(run_ranks(3, run(kModels + "olmoe-v4",
                                  {"--lora", lora, "--adapter-layout", "transformers5"})),
                 2, {"--adapter-layout transformers5", "cannot be fused in one module"});
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(SftLayout, OfTargetsThatAFileWouldNotTellIsRefusedWithTheirOption) {
  const std::string targets = R"(.*\.(gate|up)_proj)";
  expect_failure(run_ranks(3, run(kModels + "gpt_oss-mxfp4", {"--lora-targets", targets})), 2,
                 {"--lora-targets \"" + targets + "\"", "would not tell which are which"});
}

}  // namespace
}  // namespace moesaic::test
