// Files of weights that another program cuts short while they are read: one message that names the
// file, on however many ranks, and no trace of a signal.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

/// Of a file that is cut at its first use after its header was read.
Variables cutting(const std::string& file, std::int64_t left) {
  return {{"LD_PRELOAD", MOESAIC_CUT_FILE_LIBRARY},
          {"MOESAIC_CUT_FILE", file},
          {"MOESAIC_CUT_BYTES", std::to_string(left)}};
}

/// Of one that is cut to half as soon as it is mapped, which leaves its header.
Variables halving(const std::string& file) {
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(file));
  Variables variables = cutting(file, bytes / 2);
  variables["MOESAIC_CUT_MAPPED"] = "1";
  return variables;
}

void expect_cut(const ProgramResult& result, const std::string& file) {
  expect_failure(result, 3, {file + ": cut short by another program while it was read: "});
  EXPECT_EQ(result.err.find("Bus error"), std::string::npos) << result.text();
  EXPECT_EQ(result.out, "") << "of what was read as zeros";
}

class CutFile : public testing::Test {
 protected:
  void SetUp() override {
    copy_model("demo-model", model);
    ASSERT_EQ(run_moesaic(convert_to(packed)).exit_code, 0);
  }
  [[nodiscard]] static Arguments generate(const std::string& from) {
    return {"generate", "-m", from, "-p", "In the beginning", "-n", "8", "--json"};
  }

  TemporaryDirectory directory;
  std::string model = directory.path_of("model");
  std::string weights = model + "/model.safetensors";
  std::string packed = directory.path_of("packed");
  std::string shard = packed + "/packed-00001-of-00001.bin";
};

TEST_F(CutFile, WhileItIsLoaded) {
  expect_cut(run_program(joined({MOESAIC_PROGRAM}, generate(model)), cutting(weights, 200'000)),
             weights);
  expect_cut(run_moesaic(generate(packed), cutting(shard, 200'000)), shard);
}

TEST_F(CutFile, WhileSeveralRanksLoadIt) {
  expect_cut(run_ranks(2, generate(model), cutting(weights, 200'000)), weights);
}

TEST_F(CutFile, WhileAPlanAsksItForExperts) {
  expect_cut(run_moesaic(
                 {"plan", "-m", model, "--routing", "model", "--text", kData + "/demo-heldout.txt"},
                 cutting(weights, 200'000)),
             weights);
}

TEST_F(CutFile, WhileItIsUsedWhereItIsMapped) {
  for (const int ranks : {1, 2}) {
    const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(shard));
    expect_cut(run_ranks(ranks, joined(generate(packed), {"--mmap"}), cutting(shard, bytes / 2)),
               shard);
    std::filesystem::remove_all(packed);
    ASSERT_EQ(run_moesaic(convert_to(packed)).exit_code, 0);
  }
}

TEST_F(CutFile, WhileAnAdapterIsTrained) {
  const std::string out = directory.path_of("out");
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(shard));
  expect_cut(run_moesaic({"sft", "-m", packed, "--mmap", "--data", kData + "/demo-sft.jsonl", "-o",
                          out, "--max-steps", "1"},
                         cutting(shard, bytes / 2)),
             shard);
  EXPECT_FALSE(std::filesystem::exists(out + "/adapter_model.safetensors"));
}

TEST_F(CutFile, AnAdapterOrAStateWhileItIsRead) {
  const std::string out = directory.path_of("out");
  const Arguments sft = {"sft", "-m", model,         "--data", kData + "/demo-sft.jsonl",
                         "-o",  out,  "--max-steps", "1"};
  const std::string state = out + "/checkpoint-1/state.safetensors";
  const std::string adapter = out + "/adapter_model.safetensors";
  ASSERT_EQ(run_moesaic(sft).exit_code, 0);
  expect_cut(run_ranks(2, joined(sft, {"--resume"}), halving(state)), state);
  expect_cut(run_moesaic(joined(generate(model), {"--lora", out}), halving(adapter)), adapter);
}

TEST_F(CutFile, WhileAnAdapterIsMergedIntoIt) {
  const std::string out = directory.path_of("out");
  const std::string merged = directory.path_of("merged");
  ASSERT_EQ(run_moesaic({"sft", "-m", model, "--data", kData + "/demo-sft.jsonl", "-o", out,
                         "--max-steps", "1", "--lora-targets", "attention"})
                .exit_code,
            0);
  expect_cut(run_moesaic({"convert", "-m", model, "--lora", out, "--merge", "-o", merged},
                         halving(weights)),
             weights);
  EXPECT_FALSE(std::filesystem::exists(merged));
}

TEST_F(CutFile, WhileItIsConverted) {
  const std::string out = directory.path_of("out");
  expect_cut(run_moesaic({"convert", "-m", model, "-o", out}, cutting(weights, 200'000)), weights);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".part"));
}

}  // namespace
}  // namespace moesaic::test
