// What the program says of how its ranks were started.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(LaunchErrors, TasksOfSrunWithoutAProcessManagerAreRefusedBeforeMpiStarts) {
  const Variables step = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NODELIST", "node[1-2]"},
                          {"SLURM_PROCID", "0"},         {"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},        {"SLURM_STEPID", "0"}};
  const ProgramResult result = run_moesaic(generate_with({}), step);
  expect_failure(result, 2, {"2 tasks", "srun --mpi=pmix"});
  EXPECT_EQ(lines_of(result.err).size(), 1U) << result.text();
  const ProgramResult alone = run_moesaic(generate_with({}), {{"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(alone.exit_code, 0) << alone.text();
}

TEST(LaunchErrors, VerbsOfOneProcessRefuseToBeStartedSeveralTimes) {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    expect_failure(run_moesaic({"study", "run", "no.ini"}, {{size, "4"}}), 2,
                   {"study run is one process", "without mpirun or srun"});
    expect_failure(run_moesaic({"study", "run", "no.ini"}, {{size, "1"}}), 3, {"no.ini"});
  }
}

TEST(LaunchErrors, CrowdedCoresAreToldOnceByEveryVerbThatComputes) {
  const TemporaryDirectory directory;
  const std::string threads = std::to_string(std::thread::hardware_concurrency() + 1);
  const Arguments crowded = {"-t", threads};
  const auto notes = [](const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return std::ranges::count_if(lines_of(result.err), [](const std::string& line) {
      return line.find("note: ") != std::string::npos && line.find("share") != std::string::npos;
    });
  };
  for (const Arguments& verb : std::vector<Arguments>{
           {"generate", "-m", kDemo, "-p", "In", "-n", "1"},
           {"sft", "-m", kDemo, "--data", kData + "/demo-sft.jsonl", "--lora-rank", "2",
            "--max-steps", "1", "-o", directory.path_of("adapter")},
           {"convert", "-m", kDemo, "-o", directory.path_of("model")},
           {"bench", "sft", "-m", kDemo, "--step-tokens", "40", "--sample-tokens", "16", "-r", "1"},
           {"bench", "layer", "--layer", "8,64,32,2", "--formats", "bf16", "--tokens", "1",
            "--routing", "even", "--seconds", "0.001", "--footprint", "4M"}}) {
    EXPECT_EQ(notes(run_moesaic(joined(verb, crowded))), 1) << verb.front();
  }
  EXPECT_EQ(notes(run_moesaic({"inspect", "-m", kDemo})), 0);
}

TEST(LaunchErrors, TasksThatDoNotKnowOfEachOtherSaySoOnce) {
  for (const auto& [task, lines] : {std::pair("0", 1), {"1", 0}}) {
    const ProgramResult result =
        run_program(joined({"env", "SLURM_STEP_NUM_TASKS=2", std::string("SLURM_PROCID=") + task},
                           moesaic_command(generate_with({}))));
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_EQ(result.error_lines(), lines) << result.text();
    EXPECT_EQ(result.err.find("use srun --mpi=pmix") != std::string::npos, lines == 1)
        << result.text();
  }
}

}  // namespace
}  // namespace moesaic::test
