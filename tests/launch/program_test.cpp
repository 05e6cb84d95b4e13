// The program as a user meets it: started by itself and by mpirun, judged by its output, its exit
// code and the time it takes to end.

#include "tests/launch/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "src/checkpoint/safetensors.h"
#include "tests/launch/broken_models.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

const std::string kData = MOESAIC_TEST_DATA;
const std::string kDemo = kData + "/demo-model";

/// All ranks of a failed job have ended in this time.
constexpr double kFailureSeconds = 5;

using Arguments = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void expect_failure(const ProgramResult& result, int exit_code,
                    const std::vector<std::string>& texts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.text();
  EXPECT_EQ(result.error_lines(), 1) << result.text();
  for (const std::string& part : texts) {
    EXPECT_NE(result.err.find(part), std::string::npos) << "no " << part << " in " << result.text();
  }
}

Arguments generate_with(Arguments more) {
  Arguments arguments = {"generate", "-m", kDemo, "-p", "In the beginning", "-n", "8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// --- verbs ------------------------------------------------------------------------------------

TEST(Program, HelpAndVersionNeedNothing) {
  const ProgramResult help = run_moesaic({"--help"});
  EXPECT_EQ(help.exit_code, 0) << help.text();
  EXPECT_NE(help.out.find("bench model"), std::string::npos);
  const ProgramResult verb = run_moesaic({"generate", "--help"});
  EXPECT_EQ(verb.exit_code, 0);
  EXPECT_NE(verb.out.find("-n, --predict N"), std::string::npos) << verb.text();
  const ProgramResult version = run_moesaic({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_NE(version.out.find("MPI: "), std::string::npos) << version.text();
  EXPECT_EQ(run_ranks(3, {"--version"}).out, version.out) << "once for all ranks";
}

TEST(Program, InspectTellsWhatACheckpointHolds) {
  const ProgramResult text = run_moesaic({"inspect", kDemo});
  EXPECT_EQ(text.exit_code, 0) << text.text();
  EXPECT_NE(text.out.find("qwen3_moe"), std::string::npos);
  const ProgramResult line = run_moesaic({"inspect", kDemo, "--json"});
  const Json json = Json::parse(line.out, "inspect");
  EXPECT_EQ(json.at("experts").as_int(), 16);
  EXPECT_EQ(json.at("tokenizer").as_string(), "BPE");
  EXPECT_EQ(json.at("missing").size(), 0);
  std::int64_t bytes = 0;
  for (const char* part : {"expert_bytes", "non_expert_bytes"}) {
    json.at(part).for_each([&](const std::string&, const Json& count) { bytes += count.as_int(); });
  }
  EXPECT_EQ(bytes, json.at("tensor_bytes").as_int());
  EXPECT_EQ(json.at("parameters").as_int() * 2, bytes);
}

TEST(Program, TokenizeGivesIdsPiecesAndTextBack) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts.jsonl");
  write_text(file, "{\"prompt\": \"In the\\nbeginning\"}\n{\"prompt\": \"\"}\n");
  const ProgramResult result = run_moesaic({"tokenize", "-m", kDemo, "-f", file, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 2U);
  const Json first = Json::parse(lines[0], "line 1");
  EXPECT_EQ(first.at("text").as_string(), "In the\nbeginning");
  EXPECT_GT(first.at("ids").size(), 1);
  EXPECT_EQ(Json::parse(lines[1], "line 2").at("text").as_string(), "");
  const ProgramResult table = run_moesaic({"tokenize", "-m", kDemo, "-p", "In the"});
  EXPECT_EQ(static_cast<std::int64_t>(lines_of(table.out).size()), 2) << table.text();
}

TEST(Program, GenerateStreamsPromptAndContinuation) {
  const ProgramResult result = run_moesaic(generate_with({"--temp", "0"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_TRUE(result.out.starts_with("In the beginning")) << result.text();
  for (const char* part : {"load", "prompt", "generation", "attention", "experts", "memory"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part;
  }
}

TEST(Program, GenerateGivesTheSameTextsOnAnyNumberOfRanks) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts.txt");
  write_text(file, "In the beginning\nAnd the LORD said\nBlessed are\nWoe unto you,\n");
  const Arguments arguments = {"generate", "-m", kDemo,    "-f", file,
                               "-n",       "12", "--json", "-s", "7"};
  const ProgramResult one = run_moesaic(arguments);
  ASSERT_EQ(one.exit_code, 0) << one.text();
  const std::vector<std::string> expected = lines_of(one.out);
  ASSERT_EQ(expected.size(), 5U);
  const Json first = Json::parse(expected[0], "line 1");
  EXPECT_EQ(first.at("prompt").as_string(), "In the beginning");
  EXPECT_LE(first.at("ids").size(), 12);
  EXPECT_EQ(Json::parse(expected[4], "statistics").at("statistics").at("ranks").as_int(), 1);
  for (const int ranks : {2, 4}) {
    const ProgramResult many = run_ranks(ranks, arguments);
    ASSERT_EQ(many.exit_code, 0) << many.text();
    const std::vector<std::string> lines = lines_of(many.out);
    ASSERT_EQ(lines.size(), expected.size()) << many.text();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(lines[i], expected[i]) << ranks << " ranks";
  }
}

TEST(Program, GenerateStopsAtTheEndOfSequence) {
  const ProgramResult result = run_moesaic(
      {"generate", "-m", kDemo, "-p", "The LORD is", "-n", "400", "--temp", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json line = Json::parse(lines_of(result.out).front(), "line 1");
  const bool stopped = line.at("stop").as_string() == "eos";
  EXPECT_EQ(stopped, line.at("ids").size() < 400);
}

TEST(Program, ScoreWritesTheSameLogitsForAnyLaunch) {
  const TemporaryDirectory directory;
  const std::string text = directory.path_of("text.txt");
  write_text(text, read_text(kData + "/demo-heldout.txt").substr(0, 1200));
  const auto score = [&](int ranks, const std::string& name, const Arguments& more) {
    Arguments arguments = {"score", "-m",     kDemo,          "-f",
                           text,    "--json", "--logits-out", directory.path_of(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_ranks(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return read_text(directory.path_of(name));
  };
  const std::string one = score(1, "one", {"-t", "1"});
  const SafetensorsFile file = SafetensorsFile::open(directory.path_of("one"));
  ASSERT_NE(file.find("logits"), nullptr);
  EXPECT_EQ(file.find("logits")->shape[0], file.find("input_ids")->shape[0]);
  EXPECT_EQ(file.find("input_ids")->dtype, DType::i64);

  EXPECT_TRUE(one == score(1, "chunked", {"-t", "2", "-b", "17"}));
  EXPECT_TRUE(one == score(2, "two", {"--transport", "mpi"}));
  EXPECT_TRUE(one == score(3, "three", {"--check-comm"}));
  EXPECT_TRUE(one == score(4, "replicas", {"--expert-replicas", "2"}));
  EXPECT_TRUE(one == score(4, "nodes", {"--ranks-per-node", "2"}));
  EXPECT_TRUE(one == score(8, "eight", {"-t", "1"}));
  const std::string portable = score(1, "portable", {"--numerics", "portable"});
  EXPECT_TRUE(portable == score(2, "scalar", {"--isa", "scalar"}));
}

TEST(Program, Int8ActivationsHaveTheSameBitsOnEveryInstructionSet) {
  const TemporaryDirectory directory;
  const std::string text = directory.path_of("text.txt");
  write_text(text, "And God said, Let there be light: and there was light.");
  const auto score = [&](int ranks, const std::string& name, const Arguments& more) {
    Arguments arguments = {"score",
                           "-m",
                           kDemo,
                           "-f",
                           text,
                           "--expert-format",
                           "int4_group128",
                           "--logits-out",
                           directory.path_of(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_ranks(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return read_text(directory.path_of(name));
  };
  const Arguments portable = {"--numerics", "portable"};
  const Arguments int8 = {"--int4-activations", "int8", "--numerics", "portable"};
  Arguments scalar = int8;
  scalar.insert(scalar.end(), {"--isa", "scalar"});
  const std::string one = score(1, "one", int8);
  EXPECT_TRUE(one == score(3, "three", int8));
  EXPECT_TRUE(one == score(1, "scalar", scalar));
  EXPECT_FALSE(one == score(1, "bf16", portable));
}

TEST(Program, ScoreTellsLossAndPerplexity) {
  const TemporaryDirectory directory;
  const std::string text = directory.path_of("text.txt");
  write_text(text, "And God said, Let there be light: and there was light.");
  const ProgramResult result = run_ranks(2, {"score", "-m", kDemo, "-f", text, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json json = Json::parse(result.out, "score");
  EXPECT_NEAR(json.at("perplexity").as_double(), std::exp(json.at("loss").as_double()), 1e-9);
  EXPECT_LT(json.at("loss").as_double(), std::log(2048.0));
}

TEST(Program, BenchModelReportsBothTests) {
  const ProgramResult result =
      run_ranks(2, {"bench", "model", "-m", kDemo, "-p", "16", "-n", "4", "-r", "2", "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json json = Json::parse(result.out, "bench");
  ASSERT_EQ(json.size(), 2);
  EXPECT_EQ(json.at(0).at("n_ranks").as_int(), 2);
  EXPECT_EQ(json.at(1).at("n_gen").as_int(), 4);
  EXPECT_EQ(json.at(0).at("samples_ts").size(), 2);
  EXPECT_GT(json.at(0).at("flops_share").as_double(), 0);
  EXPECT_GT(json.at(0).at("roof_bytes_per_second").as_double(), 1e8);
}

TEST(Program, DoctorChecksThisLaunch) {
  const ProgramResult result = run_ranks(4, {"doctor", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json json = Json::parse(result.out, "doctor");
  EXPECT_EQ(json.at("ranks").size(), 4);
  json.at("kernels").for_each([](const std::string& name, const Json& kernel) {
    EXPECT_TRUE(kernel.at("passed").as_bool()) << name;
  });
  EXPECT_EQ(run_moesaic({"doctor"}).exit_code, 0);
}

TEST(Program, ShowConfigTellsWhereValuesComeFrom) {
  const ProgramResult result =
      run_ranks(2, {"generate", "--show-config", "-n", "3"}, {{"MOESAIC_TOP_K", "9"}});
  EXPECT_EQ(result.exit_code, 0) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  const auto has = [&](const std::string& start, const std::string& end) {
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.starts_with(start) && line.ends_with(end);
    });
  };
  EXPECT_EQ(has("predict = 3", "# command line"), 1) << result.text();
  EXPECT_EQ(has("top-k = 9", "# environment"), 1) << result.text();
}

// --- usage ------------------------------------------------------------------------------------

TEST(ProgramErrors, Usage) {
  expect_failure(run_moesaic({"genrate"}), 2, {"genrate", "did you mean generate?"});
  expect_failure(run_moesaic(generate_with({"--tpo-p", "1"})), 2, {"--tpo-p", "--top-p"});
  expect_failure(run_moesaic(generate_with({"--top-p", "2"})), 2, {"--top-p", "2"});
  expect_failure(run_moesaic(generate_with({"--combine", "fast"})), 2,
                 {"--combine", "fast", "exact"});
  expect_failure(run_moesaic({"generate", "-p", "x"}), 2, {"--model"});
  expect_failure(run_moesaic({"generate", "-m", kDemo}), 2, {"--prompt", "--file"});
  expect_failure(run_moesaic({"score", "-m", kDemo}), 2, {"--file"});
  expect_failure(run_moesaic(generate_with({"--isa", "avx512_bf16", "--numerics", "portable"})), 2,
                 {"--isa"});
  expect_failure(run_moesaic(generate_with({"--memory-limit", "lots"})), 2,
                 {"--memory-limit", "lots"});
}

TEST(ProgramErrors, UsageIsToldOnceByManyRanks) {
  expect_failure(run_ranks(3, generate_with({"--top-p", "2"})), 2, {"[rank 0/3", "--top-p"});
  expect_failure(run_ranks(3, generate_with({"--expert-replicas", "2"})), 2,
                 {"--expert-replicas 2", "3 ranks"});
}

TEST(ProgramErrors, PromptEmptyOrNotUtf8) {
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", ""}), 2, {"empty"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-p", "a\xff"}), 2, {"not UTF-8"});
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("prompts");
  for (const std::string verb : {"generate", "score"}) {
    write_text(file, "");
    expect_failure(run_ranks(2, {verb, "-m", kDemo, "-f", file}), 2, {"empty"});
    write_text(file, "good\nbad \xc3\x28\n");
    expect_failure(run_moesaic({verb, "-m", kDemo, "-f", file}), 3, {file, "not UTF-8"});
  }
  write_text(file, "one\n\nthree\n");
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file}), 2, {"line 2", "empty"});
  write_text(file, "{\"text\": \"one\"}\n");
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file}), 3, {"line 1", "prompt"});
  expect_failure(run_moesaic({"generate", "-m", kDemo, "-f", file + "x"}), 3, {file + "x"});
}

TEST(ProgramErrors, TextTooShortToScore) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("text");
  write_text(file, "a");
  expect_failure(run_ranks(2, {"score", "-m", kDemo, "-f", file}), 2, {"1 token"});
}

TEST(ProgramErrors, ContextExceeded) {
  expect_failure(run_ranks(2, generate_with({"-n", "5000"})), 2, {"5000", "2048", "--ctx-size"});
  expect_failure(run_moesaic(generate_with({"--ctx-size", "6"})), 2, {"6", "--ctx-size"});
  const ProgramResult score =
      run_moesaic({"score", "-m", kDemo, "-f", kData + "/demo-heldout.txt", "-c", "100"});
  expect_failure(score, 2, {"100", "--ctx-size"});
}

TEST(ProgramErrors, MoreRanksThanExperts) {
  const std::string model = kData + "/models/mixtral-v5";  // 5 experts
  expect_failure(run_ranks(6, {"generate", "-m", model, "-p", "x"}), 2,
                 {"6 ranks", "5 experts", "at most 5"});
}

TEST(ProgramErrors, NotEnoughMemory) {
  const ProgramResult result = run_ranks(2, generate_with({"--memory-limit", "2M"}));
  expect_failure(result, 4, {"not enough memory", "2.00 MiB", "experts 5.62 MiB"});
  EXPECT_LT(result.seconds, kFailureSeconds);
}

TEST(ProgramErrors, LogitsFileCannotBeWritten) {
  const ProgramResult result = run_ranks(
      2, {"score", "-m", kDemo, "-f", kData + "/demo-prompts.txt", "--logits-out", "/nope/x"});
  expect_failure(result, 4, {"/nope/x"});
}

TEST(ProgramErrors, StandardOutputCannotBeWritten) {
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const std::string program = MOESAIC_PROGRAM;
  for (const std::string arguments : {"--help", "tokenize -p x -m "}) {
    const std::string directory = arguments == "--help" ? "" : kDemo;
    const ProgramResult result =
        run_program({"/bin/sh", "-c", program + " " + arguments + directory + " > /dev/full"});
    expect_failure(result, 4, {"standard output"});
  }
}

// --- files ------------------------------------------------------------------------------------

class BrokenModelTest : public testing::TestWithParam<BrokenModel> {};

TEST_P(BrokenModelTest, IsRefusedWithOneLine) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model(GetParam().base, model);
  GetParam().break_it(model);
  const Arguments arguments = {"generate", "-m", model, "-p", "In the", "-n", "1"};
  expect_failure(run_moesaic(arguments), GetParam().exit_code, GetParam().texts);
  const ProgramResult ranks = run_ranks(3, arguments);
  expect_failure(ranks, GetParam().exit_code, GetParam().texts);
  EXPECT_LT(ranks.seconds, kFailureSeconds) << ranks.text();
}

INSTANTIATE_TEST_SUITE_P(All, BrokenModelTest, testing::ValuesIn(broken_models()),
                         [](const auto& model) { return model.param.name; });

TEST(ProgramErrors, InspectNamesMissingTensors) {
  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  const auto broken = std::ranges::find(broken_models(), "TensorMissing", &BrokenModel::name);
  broken->break_it(model);
  const ProgramResult result = run_moesaic({"inspect", model, "--json"});
  expect_failure(result, 3, {"1 tensor", "model.layers.0.mlp.experts.0.down_proj.weight"});
  const Json json = Json::parse(result.out, "inspect");
  EXPECT_EQ(json.at("missing").size(), 1);
  EXPECT_EQ(json.at("unknown").at(std::int64_t{0}).as_string(), "model.layers.0.other");
}

// --- one rank alone ---------------------------------------------------------------------------

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
  EXPECT_LT(result.seconds, kFailureSeconds) << result.text();
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
  EXPECT_LT(result.seconds, kFailureSeconds) << result.text();
}

TEST(ProgramErrors, RankThatDoesNotComeIsNamed) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path_of("pipe");  // nobody writes: rank 0 waits for ever
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ProgramResult result =
      run_ranks(2, {"generate", "-m", kDemo, "-f", pipe, "--timeout", "2"});
  expect_failure(result, 5, {"[rank 1/2", "waiting for rank 0"});
  EXPECT_GE(result.seconds, 2);
  EXPECT_LT(result.seconds, 2 + kFailureSeconds);
}

}  // namespace
}  // namespace moesaic::test
