// One rank has other files, options or memory than the others, or does not come at all.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tests/launch/broken_models.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(ProgramErrors, OneRankFailingEndsAll) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const auto broken = std::ranges::find(broken_models(), "FileCut", &BrokenModel::name);
  broken->break_it(model);
  const Arguments good = generate_with({});
  const Arguments bad = {"generate", "-m", model, "-p", "In the beginning", "-n", "8"};
  const ProgramResult result = run_different_ranks({good, good, bad});
  expect_failure(result, 3, {"[rank 2/3", "cut short"});
}

TEST(ProgramErrors, RanksWithDifferentModelsAreRefused) {
  const Arguments other = generate_with({"-m", kData + "/models/qwen3_moe-v4"});
  expect_failure(run_different_ranks({generate_with({}), other}), 5, {"rank 1", "model"});
}

/// Flips a bit of the byte `from_end` bytes before the end of a file.
void flip(const std::string& path, std::size_t from_end) {
  std::string text = read_text(path);
  char& byte = text[text.size() - from_end];
  byte = static_cast<char>(byte ^ 4);
  write_text(path, text);
}

TEST(ProgramErrors, RanksWithOtherBytesOfWeightsAreRefused) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  const std::string other = directory.path_of("other");
  copy_model("demo-model", model);
  const Arguments good = generate_with({});
  const Arguments copy = generate_with({"-m", model});
  EXPECT_EQ(run_different_ranks({good, copy}).exit_code, 0);
  flip(model + "/model.safetensors", 1);
  const std::vector<std::string> texts = {"\"model.norm.weight\" in model.safetensors",
                                          "rank 1 and 2 have other bytes"};
  expect_failure(run_different_ranks({good, copy, copy}), 5, texts);
  // Converted directories have the same manifest, and so checksums, as if they were the same.
  ASSERT_EQ(run_moesaic(convert_to(other)).exit_code, 0);
  const std::string packed = directory.path_of("packed");
  std::filesystem::copy(other, packed);
  flip(packed + "/packed-00001-of-00001.bin",
       std::filesystem::file_size(packed + "/packed-00001-of-00001.bin"));
  expect_failure(run_different_ranks({generate_with({"-m", other}), generate_with({"-m", packed})}),
                 5, {"\"embedding\" in packed-00001-of-00001.bin", "rank 1 has other bytes"});
}

TEST(ProgramErrors, VerifyComparesAllBytesOfACheckpoint) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  flip(model + "/model.safetensors", 100'000);  // between two samples
  const Arguments good = generate_with({"--verify"});
  const ProgramResult result =
      run_different_ranks({good, generate_with({"-m", model, "--verify"})});
  expect_failure(result, 5, {"rank 1 has other bytes", "weight \"model.layers."});
  EXPECT_EQ(run_different_ranks({good, good}).exit_code, 0);
}

TEST(ProgramErrors, RanksWithDifferentOptionsAreRefused) {
  const Arguments few = generate_with({"--parallel", "2"});
  const Arguments many = generate_with({"--parallel", "4"});
  expect_failure(run_different_ranks({few, few, many}), 5, {"rank 2", "MOESAIC_PARALLEL"});
  const ProgramResult threads =
      run_different_ranks({generate_with({"-t", "1"}), generate_with({"-t", "2"})});
  EXPECT_EQ(threads.exit_code, 0) << threads.text();
}

TEST(ProgramErrors, RankThatDoesNotComeIsNamed) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path_of("pipe");  // nobody writes: rank 0 waits for ever
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ProgramResult result =
      run_ranks(2, {"generate", "-m", kDemo, "-f", pipe, "--timeout", "2"});
  expect_failure(result, 5, {"[rank 1/2", "all wait for rank 0"});
  EXPECT_GE(result.seconds, 2);
}

}  // namespace
}  // namespace moesaic::test
