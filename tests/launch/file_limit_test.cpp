// A limit on the size of files, which counts shared memory too: one line that says what found no
// room.

#include <gtest/gtest.h>

#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

/// The command, none of whose files may have more bytes.
Arguments limited(const std::string& bytes, const Arguments& command) {
  return joined({"prlimit", "--fsize=" + bytes}, command);
}

TEST(FileLimit, TheFileThatIsWrittenIsNamed) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  const Arguments score = {
      MOESAIC_PROGRAM, "score",        "-m", kDemo, "-f", kData + "/demo-heldout.txt", "-c",
      "4096",          "--logits-out", out};
  // By mpirun: a process alone starts one of Open MPI, with the same limit.
  expect_failure(run_program(joined({MOESAIC_MPIRUN, "-n", "1"}, limited("65536", score))), 4,
                 {out, "File too large (ulimit -f"});
}

TEST(FileLimit, SamplesThatFindNoRoomLeaveTheFileThatWasThere) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("samples.jsonl");
  write_text(out, "of an earlier run");
  const Arguments samples = {MOESAIC_PROGRAM,           "sft",           "-m", kDemo, "--data",
                             kData + "/demo-sft.jsonl", "--samples-out", out};
  const Arguments in_mpirun = {MOESAIC_MPIRUN, "-n", "1"};
  expect_failure(run_program(joined(in_mpirun, limited("32768", samples))), 4,
                 {out, "File too large (ulimit -f"});
  EXPECT_EQ(read_text(out), "of an earlier run");
  EXPECT_EQ(contents(directory.path()).size(), 1U);
}

/// Many rows of 4 KiB after some, on ranks of which the first is `first`.
ProgramResult exchange_rows(int ranks, const Arguments& more, const std::string& first_limit) {
  const Arguments bench = joined({MOESAIC_PROGRAM, "bench", "exchange", "--layer", "8,2048,64,1",
                                  "--seconds", "0.001", "--routing", "even", "-o", "jsonl"},
                                 more);
  const Arguments first = joined({MOESAIC_MPIRUN, "-n", "1"}, limited(first_limit, bench));
  const Arguments others = joined({":", "-n", std::to_string(ranks - 1)}, bench);
  // MPI's own shared memory is not what is tested.
  return run_program(joined(first, others), {{"OMPI_MCA_btl", "self,tcp"}});
}

TEST(FileLimit, RowsThatFindNoRoomInANodeEndTheJob) {
  const std::string limit = "8388608";
  const ProgramResult small = exchange_rows(2, {"--tokens", "64"}, limit);
  ASSERT_EQ(small.exit_code, 0) << small.text();
  const ProgramResult large = exchange_rows(2, {"--tokens", "64,8192"}, limit);
  expect_failure(large, 4, {"[rank 0/2", "shared memory: no room for ", "File too large"});
  EXPECT_EQ(lines_of(large.out).size(), lines_of(small.out).size()) << large.text();
}

TEST(FileLimit, MessagesThatFindNoRoomEndTheJob) {
  const Arguments nodes = {"--ranks-per-node", "2", "--tokens"};
  const std::string limit = "8388608";
  const ProgramResult small = exchange_rows(4, joined(nodes, {"64"}), limit);
  ASSERT_EQ(small.exit_code, 0) << small.text();
  const ProgramResult large = exchange_rows(4, joined(nodes, {"64,4096"}), limit);
  expect_failure(large, 4, {"[rank 0/4", "shared memory: no room for ", "File too large"});
}

}  // namespace
}  // namespace moesaic::test
