// Disks that are full: one line that says which file, and what to do. They are small file systems
// that are mounted where a process may do that.

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (run_program(with_small_disk("64k", disk_, {"true"})).exit_code != 0) {
      GTEST_SKIP() << "no file system can be mounted here";
    }
  }

  /// The command, which finds a file system of this size in the place of `where`; nobody else does.
  [[nodiscard]] static Arguments with_small_disk(const std::string& size, const std::string& where,
                                                 const Arguments& command) {
    const std::string mount = "mount -t tmpfs -o size=" + size + " tmpfs '" + where + "'";
    return joined({"unshare", "-m", "sh", "-c", mount + " && exec \"$@\"", "sh"}, command);
  }

  TemporaryDirectory directory_;
  std::string disk_ = directory_.path();
};

TEST_F(FullDisk, TheFileThatIsWrittenIsNamed) {
  const std::string book = kData + "/demo-heldout.txt";
  const std::string prompts = kData + "/demo-prompts.txt";
  const std::string out = disk_ + "/out";
  const std::vector<Arguments> commands = {
      {"generate", "-m", kDemo, "-f", prompts, "-n", "60", "--num-return", "9", "--out", out},
      {"score", "-m", kDemo, "-f", book, "--logprobs-out", out},
      {"score", "-m", kDemo, "-f", book, "-c", "4096", "--logits-out", out},
      convert_to(out, {"--shard-size", "64K"})};
  for (const Arguments& command : commands) {
    expect_failure(run_program(with_small_disk("8k", disk_, moesaic_command(command))), 4,
                   {out, "No space left on device (", "make room"});
  }
}

/// Of adapters of 0.6 MB, whose checkpoints have 2.5 MB.
Arguments fine_tuning(const std::string& out, const std::string& steps, const Arguments& more) {
  return joined({"sft", "-m", kDemo, "--data", kData + "/demo-sft.jsonl", "-o", out, "--max-steps",
                 steps, "--lora-rank", "2"},
                more);
}

TEST_F(FullDisk, AFineTuningAsksForRoomBeforeItsFirstStep) {
  const std::string out = disk_ + "/out";
  const auto run = [&](const std::string& size, const Arguments& more) {
    return run_program(with_small_disk(size, disk_, moesaic_command(fine_tuning(out, "2", more))));
  };
  for (const auto& [size, more] :
       {std::pair("3300k", Arguments{"--save-every", "1"}), std::pair("2800k", Arguments{})}) {
    const ProgramResult refused = run(size, more);
    expect_failure(refused, 4,
                   {out + " (checkpoints of the run", "cannot reserve", "No space left on device (",
                    "make room"});
    EXPECT_EQ(refused.err.find("step 1/2"), std::string::npos) << refused.text();
  }
  const ProgramResult done = run("3500k", {});
  EXPECT_EQ(done.exit_code, 0) << done.text();
  const Arguments gradients = {"--grad-out", disk_ + "/gradients"};
  expect_failure(run("3500k", gradients), 4,
                 {out + " (checkpoints of the run, and the adapter)", "cannot reserve"});
  expect_failure(run("400k", gradients), 4, {disk_ + "/gradients", "cannot reserve"});
  const ProgramResult with_gradients = run("4200k", gradients);
  EXPECT_EQ(with_gradients.exit_code, 0) << with_gradients.text();
}

TEST_F(FullDisk, AFineTuningAsksForRoomForAllItsCheckpoints) {
  const std::string out = disk_ + "/out";
  const Arguments keeps = {"--save-every", "1", "--keep", "1000000"};
  const ProgramResult refused =
      run_program(with_small_disk("115m", disk_, moesaic_command(fine_tuning(out, "80", keeps))));
  expect_failure(refused, 4, {out + " (checkpoints of the run)", "cannot reserve"});
  EXPECT_EQ(refused.err.find("step 1/"), std::string::npos) << refused.text();
}

TEST_F(FullDisk, FewerCheckpointsMakeRoomForARunThatGoesOn) {
  const std::string out = disk_ + "/out";
  const Arguments constant = {"--schedule", "constant", "--save-every", "1"};
  const Arguments first = moesaic_command(fine_tuning(out, "4", joined(constant, {"--keep", "4"})));
  const Arguments on =
      moesaic_command(fine_tuning(out, "6", joined(constant, {"--keep", "1", "--resume"})));
  const std::string both = "first=''; i=0; while [ $i -lt " + std::to_string(first.size()) +
                           " ]; do first=\"$first '$1'\"; shift; i=$((i + 1)); done; "
                           "eval \"$first\" && \"$@\"";
  const ProgramResult result = run_program(
      with_small_disk("12m", disk_, joined({"sh", "-c", both, "sh"}, joined(first, on))));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.err.find("going on after step 4"), std::string::npos) << result.text();
}

TEST_F(FullDisk, ARunThatIsThereStaysWhereAnotherHasNoRoomInItsPlace) {
  const std::string out = disk_ + "/out";
  const Arguments two = moesaic_command(fine_tuning(out, "2", {}));
  const Arguments many =
      moesaic_command(fine_tuning(out, "9", {"--overwrite", "--save-every", "1", "--keep", "9"}));
  const std::string count = std::to_string(two.size());
  const std::string both = "first=''; i=0; while [ $i -lt " + count +
                           " ]; do first=\"$first '$1'\"; shift; i=$((i + 1)); done; "
                           "eval \"$first\" 2> /dev/null && { \"$@\"; code=$?; }; "
                           "test -e '" +
                           out + "/adapter_model.safetensors' || code=77; exit $code";
  expect_failure(run_program(with_small_disk("5m", disk_,
                                             joined({"sh", "-c", both, "sh"}, joined(two, many)))),
                 4, {out + ": ", "without the run that is there"});
}

/// Others write to the disk, too, from the first checkpoint on.
TEST_F(FullDisk, AFineTuningTellsWhatIsSaved) {
  const std::string out = disk_ + "/out";
  const std::string fill =
      "\"$@\" & run=$!; until grep -qs save " + out + "/metrics.jsonl || ! kill -0 $run; " +
      "do sleep 0.05; done; i=0; while kill -0 $run 2> /dev/null; do i=$((i + 1)); " +
      "dd if=/dev/zero of=" + disk_ + "/fill$i bs=64k 2> /dev/null; sleep 0.05; done; wait $run";
  const ProgramResult result = run_program(
      with_small_disk("9m", disk_,
                      joined({"sh", "-c", fill, "sh"},
                             moesaic_command(fine_tuning(out, "100000", {"--save-every", "1"})))));
  expect_failure(result, 4,
                 {"is saved in " + out + "; --resume goes on after it", "error: " + out + "/",
                  "No space left on device (", "make room and start again"});
}

TEST_F(FullDisk, ThatOfTemporaryFilesIsNamedBeforeMpiStarts) {
  const ProgramResult result = run_program(
      with_small_disk("64k", disk_, moesaic_command(generate_with({}))), {{"TMPDIR", disk_}});
  expect_failure(result, 4, {disk_, " are free", "TMPDIR"});
  EXPECT_EQ(lines_of(result.err).size(), 1U) << result.text();
}

/// MPI may want room there where it has no other way.
TEST_F(FullDisk, OneOfSharedMemoryIsNoBusError) {
  const ProgramResult usual = run_ranks(2, generate_with({}));
  const ProgramResult full =
      run_program(with_small_disk("64k", "/dev/shm", ranks_command(2, generate_with({}))));
  if (full.exit_code == 0) {
    EXPECT_EQ(full.out, usual.out);
  }
  EXPECT_NE(full.exit_code, 128 + SIGBUS) << full.text();
  EXPECT_EQ(full.err.find("Bus error"), std::string::npos) << full.text();
}

}  // namespace
}  // namespace moesaic::test
