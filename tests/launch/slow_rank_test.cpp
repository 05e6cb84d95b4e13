// A rank whose disk is slower than the others wait: it is waited for as long as it reads.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/launch/broken_models.h"
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

/// Rank 0 does it, for longer than the other waits for a rank that does nothing.
TEST(SlowRank, IsWaitedForWhileItVerifies) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  ASSERT_EQ(run_moesaic(convert_to(out)).exit_code, 0);
  const ProgramResult slow =
      run_program(joined({MOESAIC_MPIRUN, "-n", "2", "env", "LD_PRELOAD=" MOESAIC_SLOW_READS,
                          "MOESAIC_READ_MS=20", MOESAIC_PROGRAM, "inspect", out, "--verify"},
                         kPatience));
  ASSERT_EQ(slow.exit_code, 0) << slow.text();
  EXPECT_NE(slow.err.find("checksums are right"), std::string::npos) << slow.text();
  EXPECT_EQ(slow.err.find("rank"), std::string::npos) << "one tells it: " << slow.text();
  EXPECT_EQ(
      std::ranges::count_if(lines_of(slow.out),
                            [](const std::string& line) { return line.starts_with("family"); }),
      1)
      << slow.text();
  EXPECT_GT(slow.seconds, 2 * kTimeout) << "or the test shows nothing";
}

/// Each of several weights is a shard of its own.
const Arguments kSmallShards = {"--shard-size", "64K", "-t", "1"};

TEST(Convert, goes_on_after_the_shards_that_are_whole_when_it_was_killed) {
  const TemporaryDirectory directory;
  const Arguments options = joined(kSmallShards, {"--expert-format", "nvfp4"});  // with scales
  const std::string whole = directory.path_of("whole");
  const std::string out = directory.path_of("out");
  const ProgramResult expected = run_moesaic(convert_to(whole, options));
  ASSERT_EQ(expected.exit_code, 0) << expected.text();
  // It reads four headers and more before the first weight.
  for (const char* read : {"60", "40"}) {
    const ProgramResult killed = run_program(joined(
        {"env", "LD_PRELOAD=" MOESAIC_SLOW_READS, std::string("MOESAIC_KILLING_READ=") + read},
        moesaic_command(convert_to(out, options))));
    EXPECT_EQ(killed.exit_code, 137) << killed.text();
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  const auto records = lines_of(read_text(out + ".part/conversion.jsonl"));
  EXPECT_GT(records.size(), 3U) << "the second went on where the first was";
  write_text(out + ".part/conversion.jsonl",
             read_text(out + ".part/conversion.jsonl") + "{\"shard\": ");
  const ProgramResult rest = run_ranks(2, convert_to(out, options));
  EXPECT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_NE(rest.err.find(std::to_string(records.size() - 1) + " of "), std::string::npos)
      << rest.text();
  EXPECT_NE(rest.err.find("shards are there from an earlier conversion"), std::string::npos);
  EXPECT_TRUE(contents(out) == contents(whole));
  EXPECT_EQ(num_files(directory.path()), 2);
}

TEST(Convert, leaves_no_directory_when_it_is_killed) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const ProgramResult killed =
      run_program(joined({"env", "LD_PRELOAD=" MOESAIC_SLOW_READS, "MOESAIC_KILLING_READ=60"},
                         moesaic_command(convert_to(out))));
  EXPECT_EQ(killed.exit_code, 137) << killed.text();
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_TRUE(std::filesystem::exists(out + ".part"));
  const ProgramResult again = run_ranks(2, convert_to(out));
  EXPECT_EQ(again.exit_code, 0) << again.text();
  EXPECT_EQ(num_files(directory.path()), 1);
  EXPECT_EQ(run_moesaic({"inspect", out, "--verify"}).exit_code, 0);
}

TEST(Convert, keeps_whole_shards_when_it_fails_before_it_goes_on) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const std::string out = directory.path_of("out");
  const Arguments command =
      moesaic_command(joined({"convert", "-m", model, "-o", out}, kSmallShards));
  const ProgramResult killed = run_program(
      joined({"env", "LD_PRELOAD=" MOESAIC_SLOW_READS, "MOESAIC_KILLING_READ=60"}, command));
  EXPECT_EQ(killed.exit_code, 137) << killed.text();
  const auto records = lines_of(read_text(out + ".part/conversion.jsonl"));
  ASSERT_GT(records.size(), 1U) << "or the test shows nothing";
  std::filesystem::create_directory(model + "/LICENSE");  // a file would be copied
  expect_failure(run_program(command), 3, {"LICENSE", "not a regular file"});
  std::filesystem::remove(model + "/LICENSE");
  const ProgramResult rest = run_program(command);
  EXPECT_EQ(rest.exit_code, 0) << rest.text();
  EXPECT_NE(rest.err.find(std::to_string(records.size() - 1) + " of "), std::string::npos)
      << rest.text();
  EXPECT_NE(rest.err.find("shards are there from an earlier conversion"), std::string::npos);
}

TEST(Convert, of_another_kind_starts_anew) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const ProgramResult killed =
      run_program(joined({"env", "LD_PRELOAD=" MOESAIC_SLOW_READS, "MOESAIC_KILLING_READ=60"},
                         moesaic_command(convert_to(out, kSmallShards))));
  EXPECT_EQ(killed.exit_code, 137) << killed.text();
  const ProgramResult other =
      run_moesaic(convert_to(out, joined(kSmallShards, {"--expert-format", "int8"})));
  EXPECT_EQ(other.exit_code, 0) << other.text();
  EXPECT_EQ(other.err.find("earlier conversion"), std::string::npos) << other.text();
  EXPECT_EQ(run_moesaic({"inspect", out, "--verify"}).exit_code, 0);
  EXPECT_EQ(num_files(directory.path()), 1);
}

/// Its launcher ends it because the other has failed: that is what is told, and nothing after it.
TEST(SlowRank, SaysNothingWhenAnotherHasFailed) {
  const TemporaryDirectory directory;
  const std::string good = directory.path_of("good");
  const std::string altered = directory.path_of("altered");
  ASSERT_EQ(run_moesaic(convert_to(good)).exit_code, 0);
  std::filesystem::copy(good, altered);
  const std::string shard = altered + "/packed-00001-of-00001.bin";
  std::string bytes = read_text(shard);
  const std::size_t middle = bytes.size() / 2;  // among experts; few samples are compared at first
  for (std::size_t i = middle; i < middle + middle / 2; i += 50'000) bytes[i] ^= 1;
  write_text(shard, bytes);
  const auto generate = [&](const std::string& model, const char* read_ms) {
    return Arguments{"-n",       "1",
                     "env",      "LD_PRELOAD=" MOESAIC_SLOW_READS,
                     read_ms,    MOESAIC_PROGRAM,
                     "generate", "-m",
                     model,      "-p",
                     "In",       "--verify",
                     "-t",       "1"};
  };
  const Arguments slow = joined({MOESAIC_MPIRUN}, generate(good, "MOESAIC_READ_MS=60"));
  const ProgramResult result =
      run_program(joined(joined(slow, {":"}), generate(altered, "MOESAIC_READ_MS=1")));
  expect_failure(result, 3, {"[rank 1/2", "was altered"});
  EXPECT_EQ(result.err.find("interrupted"), std::string::npos) << result.text();
}

TEST(SlowRank, IsNamedWhenItReadsNoMore) {
  const ProgramResult result = run_with_slow_rank(
      generate_with(kPatience), {{"MOESAIC_READ_MS", "40"}, {"MOESAIC_LAST_READ", "100"}});
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
