// Long work that is asked to stop, as batch systems and users do it.

#include <gtest/gtest.h>
#include <signal.h>

#include "base/json.h"
#include "tests/launch/program.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

constexpr int kInterrupted = 6;

/// More prompts than a machine continues while a test looks on.
std::string many_prompts(const TemporaryDirectory& directory) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "In the beginning of " + std::to_string(i) + "\n";
  write_text(directory.path_of("prompts.txt"), text);
  return directory.path_of("prompts.txt");
}

Arguments long_generate(const std::string& prompts) {
  return {"generate", "-m", kDemo, "-f", prompts, "-n", "8", "--temp", "0", "--json"};
}

/// Whole lines and, as the last of them, statistics; fewer than all.
void expect_texts_and_statistics(const ProgramResult& result) {
  EXPECT_TRUE(result.out.ends_with("}\n")) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_GE(lines.size(), 2U) << result.text();
  EXPECT_LT(lines.size(), 20000U);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    const Json line = Json::parse(lines[i], "line");
    EXPECT_EQ(line.at("index").as_int(), static_cast<std::int64_t>(i));
    EXPECT_EQ(line.at("ids").size(), 8);
  }
  const Json statistics = Json::parse(lines.back(), "statistics").at("statistics");
  EXPECT_GT(statistics.at("generation").at("tokens").as_int(), 0);
}

TEST(Interruption, EverySignalEndsGenerationWithWhatIsFinished) {
  const TemporaryDirectory directory;
  const Arguments arguments = long_generate(many_prompts(directory));
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    RunningProgram program(moesaic_command(arguments));
    ASSERT_TRUE(program.wait_until([&] { return lines_of(program.out()).size() > 3; }));
    program.send(signal);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_code, kInterrupted) << result.err;
    const std::string name = std::string("SIG") + sigabbrev_np(signal);
    EXPECT_NE(result.err.find("interrupted (" + name + "): "), std::string::npos) << result.err;
    EXPECT_EQ(result.error_lines(), 0) << result.err;
    expect_texts_and_statistics(result);
  }
}

TEST(Interruption, RanksEndTogetherWhenTheLauncherPassesTheSignalOn) {
  const TemporaryDirectory directory;
  const Arguments arguments = long_generate(many_prompts(directory));
  RunningProgram program(ranks_command(3, arguments));
  ASSERT_TRUE(program.wait_until([&] { return lines_of(program.out()).size() > 3; }));
  program.send(SIGUSR1);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, kInterrupted) << result.err;
  EXPECT_NE(result.err.find("interrupted (SIGUSR1): "), std::string::npos) << result.err;
  EXPECT_EQ(result.error_lines(), 0) << result.err;
  expect_texts_and_statistics(result);
}

// A launcher signals one rank after the other: any may be the first to hear of it.
TEST(Interruption, TheFirstRankTellsWhatAnotherWasAskedBy) {
  const TemporaryDirectory directory;
  const Arguments arguments = long_generate(many_prompts(directory));
  const std::string pid_file = directory.path_of("pid");
  const Arguments second =
      joined({":", "-n", "1", "sh", "-c", "echo $$ >\"$0\"; exec \"$@\"", pid_file},
             moesaic_command(arguments));
  RunningProgram program(joined(ranks_command(1, arguments), second));
  ASSERT_TRUE(program.wait_until([&] { return lines_of(program.out()).size() > 3; }));
  ASSERT_EQ(kill(std::stoi(read_text(pid_file)), SIGUSR1), 0);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, kInterrupted) << result.err;
  EXPECT_NE(result.err.find("interrupted (SIGUSR1): "), std::string::npos) << result.err;
  EXPECT_EQ(result.error_lines(), 0) << result.err;
  expect_texts_and_statistics(result);
}

/// mpirun sends ranks SIGTERM after the seconds of odls_base_sigkill_timeout, and kills them about
/// as many later; it has an exit code of its own. It reads none of their output meanwhile, so that
/// texts go to a file.
TEST(Interruption, RanksEndTogetherWhenTheLauncherIsInterrupted) {
  const TemporaryDirectory directory;
  Arguments command = ranks_command(2, long_generate(many_prompts(directory)));
  command.insert(command.begin() + 1, {"--mca", "odls_base_sigkill_timeout", "10"});
  RunningProgram program(joined(command, {"-n", "200", "--out", directory.path_of("texts.jsonl")}));
  ASSERT_TRUE(
      program.wait_until([&] { return program.err().find("weights: ") != std::string::npos; }));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("interrupted (SIGTERM): "), std::string::npos) << result.text();
  EXPECT_NE(result.err.find(" of 20000 texts are finished"), std::string::npos) << result.text();
  EXPECT_EQ(result.error_lines(), 0) << result.err;
}

TEST(Interruption, TheTimeMayBeLimited) {
  for (const int ranks : {1, 2}) {
    const ProgramResult result = run_ranks(ranks, generate_with({"--max-time", "0s"}));
    EXPECT_EQ(result.exit_code, kInterrupted) << result.text();
    EXPECT_NE(result.err.find("interrupted (the time is over) while texts were read"),
              std::string::npos)
        << result.text();
  }
  const ProgramResult enough = run_moesaic(generate_with({"--max-time", "2d1h"}));
  EXPECT_EQ(enough.exit_code, 0) << enough.text();
}

TEST(Interruption, ConversionLeavesNothingBehind) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("packed");
  for (const int ranks : {1, 3}) {
    const ProgramResult result = run_ranks(ranks, convert_to(out, {"--max-time", "0s"}));
    EXPECT_EQ(result.exit_code, kInterrupted) << result.text();
    EXPECT_EQ(num_files(directory.path()), 0) << result.text();
  }
  write_text(out + ".stop", "");
  EXPECT_EQ(run_moesaic(convert_to(out + "/")).exit_code, kInterrupted);
  EXPECT_EQ(num_files(directory.path()), 0) << "the stop file is taken away";
  EXPECT_EQ(run_moesaic(convert_to(out)).exit_code, 0);
}

TEST(Interruption, BenchesTellWhatTheyHave) {
  RunningProgram model(moesaic_command(
      {"bench", "model", "-m", kDemo, "-p", "16", "-n", "0", "-r", "1000000", "-o", "json"}));
  ASSERT_TRUE(model.wait_until([&] { return model.err().find("weights: ") != std::string::npos; }));
  model.send(SIGTERM);
  EXPECT_EQ(model.wait().exit_code, kInterrupted);
  const std::vector<Arguments> benches = {{"bench", "kernels", "--shapes", "64x64", "--formats",
                                           "bf16", "-t", "1", "-o", "json", "--footprint", "16M"},
                                          {"bench", "kernels", "--op", "attention", "--shapes",
                                           "8x2x64", "-t", "1", "-o", "json", "--footprint", "16M"},
                                          {"bench", "layer", "--layer", "4,64,64,2", "--formats",
                                           "bf16", "-o", "json", "--footprint", "16M"}};
  for (const Arguments& bench : benches) {
    const ProgramResult result = run_moesaic(joined(bench, {"--max-time", "0s"}));
    EXPECT_EQ(result.exit_code, kInterrupted) << result.text();
    EXPECT_EQ(Json::parse(result.out, "bench").size(), 0) << result.text();
  }
}

}  // namespace
}  // namespace moesaic::test
