// A rank stops, computes for ever or is killed: the others say which it is, and all end.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

constexpr int kRanks = 3;

std::string text_of(const std::filesystem::path& path) {
  try {
    return read_text(path.string());
  } catch (const std::runtime_error&) {
    return "";  // of a process that is gone
  }
}

/// The process of a rank of the job whose command line has `word`; 0 if there is none.
pid_t process_of(int rank, const std::string& word) {
  const std::string variable = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text_of(entry.path() / "cmdline").find(word) == std::string::npos) continue;
    if (text_of(entry.path() / "environ").find(variable) != std::string::npos) {
      return static_cast<pid_t>(std::stol(pid));
    }
  }
  return 0;
}

/// Of the ranks with this word; those that the launcher kills need a core to end.
void expect_none_left(const std::string& word) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::duration<double>(kHangSeconds);
  for (int rank = 0; rank < kRanks; ++rank) {
    while (process_of(rank, word) != 0 && Clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(process_of(rank, word), 0) << "is left";
  }
}

/// What the ranks do when the fault comes: more of it than a machine does while a test looks on.
struct Work {
  Arguments arguments;
  std::string line;  // of the file that it reads, 20,000 times
};

const Work kGenerate{{"generate", "-m", kDemo, "-n", "8", "--json"}, "In the beginning of"};
/// Prompts alone.
const Work kScore{{"score", "-m", kDemo, "--json"}, R"({"text": "In the beginning of all"})"};

/// A job of kRanks ranks, one of which suffers `signal` when the first results are there.
ProgramResult run_with_fault(const Work& work, int victim, int signal) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("lines");
  std::string text;
  for (int i = 0; i < 20000; ++i) text += work.line + "\n";
  write_text(file, text);
  const Arguments launcher = {
      MOESAIC_MPIRUN, "-n", std::to_string(kRanks), "env", "LD_PRELOAD=" MOESAIC_ENDLESS_LOOP,
      MOESAIC_PROGRAM};
  RunningProgram program(
      joined(joined(launcher, work.arguments),
             {"-f", file, "--timeout", "5", "-t", "1", "--trace-dir", directory.path_of("trace")}));
  EXPECT_TRUE(program.wait_until([&] { return lines_of(program.out()).size() > 3; }))
      << program.err();
  const pid_t process = process_of(victim, file);
  EXPECT_GT(process, 0);
  if (process > 0) {
    EXPECT_EQ(kill(process, signal), 0);
  }
  ProgramResult result = program.wait();
  expect_none_left(file);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string trace =
        text_of(directory.path_of("trace/rank-" + std::to_string(rank) + ".jsonl"));
    EXPECT_NE(trace.find(R"("what": "done")"), std::string::npos) << "rank " << rank;
  }
  return result;
}

/// That one line of error names the victim, and a line for each rank tells where it is.
void expect_silent(const ProgramResult& result, int victim) {
  const std::string name = "rank " + std::to_string(victim) + " (";
  expect_failure(result, 5, {"error: all wait for " + name, "\n  " + name});
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::size_t begin = result.err.find("\n  rank " + std::to_string(rank) + " (");
    ASSERT_NE(begin, std::string::npos) << result.err;
    const std::string line = result.err.substr(begin + 1, result.err.find('\n', begin + 1) - begin);
    EXPECT_NE(line.find(rank == victim ? "): silent" : "): pass "), std::string::npos) << line;
    EXPECT_EQ(line.find("waiting for") == std::string::npos, rank == victim) << line;
  }
}

TEST(Fault, AStoppedRankIsNamed) {
  expect_silent(run_with_fault(kGenerate, 1, SIGSTOP), 1);
  expect_silent(run_with_fault(kScore, 2, SIGSTOP), 2);
}

TEST(Fault, AStoppedFirstRankIsNamedByTheNext) {
  const ProgramResult result = run_with_fault(kGenerate, 0, SIGSTOP);
  expect_silent(result, 0);
  EXPECT_NE(result.err.find("[rank 1/3 "), std::string::npos) << result.err;
}

TEST(Fault, ARankThatComputesForEverIsNamed) {
  expect_silent(run_with_fault(kGenerate, 2, SIGUSR2), 2);
  expect_silent(run_with_fault(kScore, 1, SIGUSR2), 1);
}

TEST(Fault, AKilledRankIsNamedBeforeTheLauncherEndsTheJob) {
  const ProgramResult result = run_with_fault(kGenerate, 1, SIGKILL);
  expect_failure(result, 137, {"[rank 0/3 ", "error: rank 1 (", ") has ended\n"});
}

}  // namespace
}  // namespace moesaic::test
