// A rank whose disk is slower than the others wait: it is waited for as long as it reads.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

/// Two ranks; the reads of the second are as `variables` say.
ProgramResult run_with_slow_rank(const Arguments& arguments, const Variables& variables) {
  Arguments command = joined({MOESAIC_MPIRUN, "-n", "1", MOESAIC_PROGRAM}, arguments);
  command.insert(command.end(), {":", "-n", "1", "env", "LD_PRELOAD=" MOESAIC_SLOW_READS});
  for (const auto& [name, value] : variables) command.push_back(name + "=" + value);
  command.emplace_back(MOESAIC_PROGRAM);
  return run_program(joined(std::move(command), arguments));
}

constexpr double kTimeout = 4;
const Arguments kPatience = {"--timeout", "4", "-t", "1"};

TEST(SlowRank, IsWaitedForWhileItLoads) {
  const Arguments arguments = joined(generate_with(kPatience), {"--temp", "0", "--json"});
  const ProgramResult quick = run_ranks(2, arguments);
  const ProgramResult slow = run_with_slow_rank(arguments, {{"MOESAIC_READ_MS", "30"}});
  ASSERT_EQ(slow.exit_code, 0) << slow.text();
  EXPECT_EQ(lines_of(slow.out).front(), lines_of(quick.out).front());
  EXPECT_GT(slow.seconds, 2 * kTimeout) << "or the test shows nothing";
}

TEST(SlowRank, IsWaitedForWhileItConverts) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const ProgramResult slow =
      run_with_slow_rank(convert_to(out, kPatience), {{"MOESAIC_READ_MS", "75"}});
  ASSERT_EQ(slow.exit_code, 0) << slow.text();
  EXPECT_GT(slow.seconds, 2 * kTimeout) << "or the test shows nothing";
  EXPECT_EQ(run_moesaic({"inspect", out, "--verify"}).exit_code, 0);
}

TEST(SlowRank, IsNamedWhenItReadsNoMore) {
  const ProgramResult result = run_with_slow_rank(
      generate_with(kPatience), {{"MOESAIC_READ_MS", "40"}, {"MOESAIC_LAST_READ", "40"}});
  expect_failure(result, 5,
                 {"[rank 0/2", "error: all wait for rank 1 (", "\n  rank 0 (",
                  "): loading: ", "\n  still loading when last heard of: rank 1 ("});
}

TEST(SlowRank, IsNotWaitedForWhenItIsDead) {
  const ProgramResult result =
      run_with_slow_rank(generate_with({}), {{"MOESAIC_KILLING_READ", "20"}});
  EXPECT_EQ(result.exit_code, 137) << result.text();
  EXPECT_LT(result.seconds, kHangSeconds) << "mpirun tells, not --timeout";
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace moesaic::test
