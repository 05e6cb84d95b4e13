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

TEST_F(FullDisk, AFineTuningTellsWhatIsSaved) {
  const Arguments training = {"sft",
                              "-m",
                              kDemo,
                              "--data",
                              kData + "/demo-sft.jsonl",
                              "-o",
                              disk_ + "/out",
                              "--max-steps",
                              "2",
                              "--save-every",
                              "1",
                              "--lora-rank",
                              "2"};
  expect_failure(run_program(with_small_disk("2600k", disk_, moesaic_command(training))), 4,
                 {"step 1 is saved in " + disk_ + "/out; --resume goes on after it", "checkpoint-2",
                  "No space left on device ("});
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
