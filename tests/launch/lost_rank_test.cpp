// One rank has other files, options or memory than the others, or does not come at all.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

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

TEST(ProgramErrors, RanksWithDifferentOptionsAreRefused) {
  const Arguments few = generate_with({"--parallel", "2"});
  const Arguments many = generate_with({"--parallel", "4"});
  expect_failure(run_different_ranks({few, few, many}), 5, {"rank 2", "MOESAIC_PARALLEL"});
  const ProgramResult threads =
      run_different_ranks({generate_with({"-t", "1"}), generate_with({"-t", "2"})});
  EXPECT_EQ(threads.exit_code, 0) << threads.text();
}

TEST(ProgramErrors, OneRankWithoutMemoryEndsAll) {
  const Arguments bench = {"bench", "model", "-m", kDemo, "-r", "1"};
  Arguments command = {MOESAIC_MPIRUN, "-n", "1", MOESAIC_PROGRAM};
  command.insert(command.end(), bench.begin(), bench.end());
  // The second rank may not map the memory that it measures the speed of reading with.
  command.insert(command.end(), {":", "-n", "1", "prlimit", "--as=600000000", MOESAIC_PROGRAM});
  command.insert(command.end(), bench.begin(), bench.end());
  const ProgramResult result = run_program(command);
  expect_failure(result, 4, {"[rank 1/2"});
}

TEST(ProgramErrors, RankThatDoesNotComeIsNamed) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path_of("pipe");  // nobody writes: rank 0 waits for ever
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ProgramResult result =
      run_ranks(2, {"generate", "-m", kDemo, "-f", pipe, "--timeout", "2"});
  expect_failure(result, 5, {"[rank 1/2", "waiting for rank 0"});
  EXPECT_GE(result.seconds, 2);
}

}  // namespace
}  // namespace moesaic::test
