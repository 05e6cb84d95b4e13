// The program as a user meets it: started by itself and by mpirun, judged by its output and its
// exit code.

#include "tests/launch/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/topology.h"
#include "src/checkpoint/safetensors.h"
#include "tests/launch/broken_models.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

TEST(Program, HelpAndVersionNeedNothing) {
  const ProgramResult help = run_moesaic({"--help"});
  EXPECT_EQ(help.exit_code, 0) << help.text();
  EXPECT_NE(help.out.find("bench model"), std::string::npos);
  for (const Arguments& group : std::vector<Arguments>{{"bench", "--help"}, {"help", "bench"}}) {
    const ProgramResult verbs = run_moesaic(group);
    EXPECT_EQ(verbs.exit_code, 0) << verbs.text();
    EXPECT_NE(verbs.out.find("bench exchange"), std::string::npos) << verbs.text();
    EXPECT_EQ(verbs.out.find("generate"), std::string::npos) << verbs.text();
  }
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
  const Json statistics = Json::parse(expected[4], "statistics").at("statistics");
  EXPECT_EQ(statistics.at("ranks").as_int(), 1);
  EXPECT_EQ(statistics.at("generation").at("tokens").as_int(), 4 * 11) << "first ones: prompt";
  const std::vector<std::pair<int, Arguments>> launches = {
      {1, {"--parallel", "1"}}, {2, {}}, {3, {"--parallel", "1", "-b", "3"}}, {4, {}}};
  for (const auto& [ranks, more] : launches) {
    const ProgramResult many = run_ranks(ranks, joined(arguments, more));
    ASSERT_EQ(many.exit_code, 0) << many.text();
    const std::vector<std::string> lines = lines_of(many.out);
    ASSERT_EQ(lines.size(), expected.size()) << many.text();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(lines[i], expected[i]) << ranks << " ranks";
  }
}

/// The likeliest tokens after a text, and why there are no more.
struct Continuation {
  std::vector<std::int64_t> ids;
  std::string stop;
};

Continuation continue_text(const std::string& model, int ranks, const Arguments& more) {
  const ProgramResult result = run_ranks(
      ranks, joined({"generate", "-m", model, "-p", "The LORD is", "--temp", "0", "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  const Json line = Json::parse(lines_of(result.out).at(0), "line 1");
  Continuation text{.ids = {}, .stop = line.at("finish_reason").as_string()};
  line.at("ids").for_each(
      [&](const std::string&, const Json& id) { text.ids.push_back(id.as_int()); });
  return text;
}

TEST(Program, GenerateStopsAtTheEndOfSequence) {
  // The demo model does not end its texts: a copy of it ends at a token that it does produce.
  const Continuation whole = continue_text(kDemo, 1, {"-n", "24"});
  ASSERT_EQ(whole.ids.size(), 24U);
  EXPECT_EQ(whole.stop, "length");
  auto last = whole.ids.begin() + 6;
  while (last != whole.ids.end() && std::find(whole.ids.begin(), last, *last) != last) ++last;
  ASSERT_NE(last, whole.ids.end()) << "no token comes for the first time";

  const TemporaryDirectory directory;
  const std::string model = directory.path_of("model");
  copy_model("demo-model", model);
  write_text(model + "/generation_config.json",
             replaced(read_text(model + "/generation_config.json"), "\"eos_token_id\": 2045",
                      "\"eos_token_id\": [2045, " + std::to_string(*last) + "]"));
  for (const int ranks : {1, 3}) {
    const Continuation ended = continue_text(model, ranks, {"-n", "24"});
    EXPECT_EQ(ended.stop, "stop");
    EXPECT_EQ(ended.ids, (std::vector<std::int64_t>(whole.ids.begin(), last)));
  }
  const Continuation ignored = continue_text(model, 1, {"-n", "24", "--ignore-eos"});
  EXPECT_EQ(ignored.stop, "length");
  EXPECT_EQ(ignored.ids, whole.ids);
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
  const std::string deferred = score(1, "deferred", {"--defer", "2"});
  EXPECT_FALSE(one == deferred);
  EXPECT_TRUE(deferred == score(1, "d-chunked", {"--defer", "2", "-t", "2", "-b", "17"}));
  EXPECT_TRUE(deferred == score(2, "d-two", {"--defer", "2", "--transport", "mpi"}));
  EXPECT_TRUE(deferred == score(3, "d-three", {"--defer", "2", "--check-comm"}));
  EXPECT_TRUE(deferred == score(4, "d-nodes", {"--defer", "2", "--ranks-per-node", "2"}));
  for (const std::string form : {"bf16", "int8"}) {
    const std::string rounded = score(1, "w-" + form, {"--wire", form});
    EXPECT_FALSE(one == rounded);
    EXPECT_TRUE(rounded == score(2, "w2-" + form, {"--wire", form, "--ranks-per-node", "1"}));
    EXPECT_TRUE(rounded == score(3, "w3-" + form, {"--wire", form, "-b", "31"}));
  }
  const Arguments fast = {"--combine", "fast"};
  const std::string added = score(3, "added", fast);
  EXPECT_FALSE(one == added);
  EXPECT_TRUE(added ==
              score(3, "a-nodes",
                    joined(fast, {"--ranks-per-node", "1", "-b", "31", "--half-batches", "on"})));
  EXPECT_TRUE(one == score(1, "a-one", fast));
  const Arguments turns = joined(fast, {"--placement", "round_robin"});
  EXPECT_TRUE(score(4, "a-memory", turns) ==
              score(4, "a-messages", joined(turns, {"--transport", "mpi"})));
  const Arguments on_nodes = joined(fast, {"--ranks-per-node", "2"});
  const std::string of_nodes = score(4, "a-two-nodes", on_nodes);
  EXPECT_FALSE(one == of_nodes);
  EXPECT_TRUE(of_nodes == score(4, "a-chunked", joined(on_nodes, {"-b", "31", "-t", "2"})));
  EXPECT_TRUE(of_nodes == score(4, "a-halves", joined(on_nodes, {"--half-batches", "on"})));
  EXPECT_FALSE(of_nodes == score(4, "a-deferred", joined(on_nodes, {"--defer", "2"})));
  EXPECT_TRUE(one == score(3, "halves", {"--half-batches", "on", "--check-comm"}));
  EXPECT_TRUE(one == score(2, "auto", {"--ranks-per-node", "1", "-b", "80"}));
  EXPECT_TRUE(deferred == score(2, "d-halves", {"--defer", "2", "--half-batches", "on"}));
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
  const Json json = Json::parse(lines_of(result.out).back(), "score").at("total");
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
  EXPECT_GT(json.at(0).at("roof_bytes_per_second").as_double(), 0);
}

TEST(Program, DoctorChecksThisLaunch) {
  const ProgramResult result = run_ranks(4, {"doctor", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json json = Json::parse(result.out, "doctor");
  EXPECT_EQ(json.at("ranks").size(), 4);
  EXPECT_FALSE(json.at("compiler").as_string().empty());
  EXPECT_NE(json.find("commit"), std::nullopt);
  EXPECT_NE(json.find("changed"), std::nullopt);
  json.at("kernels").for_each([](const std::string& name, const Json& kernel) {
    EXPECT_TRUE(kernel.at("passed").as_bool()) << name;
  });
  for (const std::string field : {"huge_pages", "shared_memory", "cpu_quota", "mpi_transports",
                                  "ucx", "process_manager", "slurm"}) {
    EXPECT_FALSE(json.at("machine").at(field).as_string().empty()) << field;
  }
  EXPECT_EQ(json.at("hosts").size(), 0) << "one host has no pairs";
  const ProgramResult without = run_moesaic({"doctor", "--nccl", "/no/nccl.so"});
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_NE(without.out.find("/no/nccl.so"), std::string::npos) << without.text();
}

TEST(Program, BindingIsToldForEachRank) {
  const Variables machine = {{"HWLOC_SYNTHETIC", "pack:2 numa:1 core:2 pu:2"},
                             {"MOESAIC_PIN", "auto"}};
  const ProgramResult bound = run_moesaic({"doctor", "--print-binding"}, machine);
  ASSERT_EQ(bound.exit_code, 0) << bound.text();
  EXPECT_NE(bound.err.find(": cpus 0 2 4 6, NUMA nodes 0 1"), std::string::npos) << bound.text();
  const ProgramResult crowded = run_moesaic({"doctor", "--print-binding", "-t", "5"}, machine);
  ASSERT_EQ(crowded.exit_code, 0) << crowded.text();
  EXPECT_NE(crowded.err.find("not bound: 5 threads share 4 cores"), std::string::npos)
      << crowded.text();
  const ProgramResult free = run_moesaic({"doctor", "--print-binding", "--pin", "off"}, machine);
  EXPECT_NE(free.err.find("not bound: --pin off"), std::string::npos) << free.text();
  const ProgramResult ranks = run_ranks(2, {"tokenize", "-m", kDemo, "-p", "a", "--print-binding"});
  ASSERT_EQ(ranks.exit_code, 0) << ranks.text();
  for (const std::string rank : {"rank 0 on ", "rank 1 on "}) {
    EXPECT_NE(ranks.err.find(rank), std::string::npos) << ranks.text();
  }
}

/// The cpus of each rank that Open MPI starts with these words alone.
std::vector<std::string> cpus_of_ranks(const Arguments& words, const Arguments& options = {}) {
  const Arguments mpirun = {
      "env", "-u", "OMPI_MCA_hwloc_base_binding_policy", "MOESAIC_PIN=auto", MOESAIC_MPIRUN,
      "-n",  "2"};
  const ProgramResult result = run_program(
      joined(joined(mpirun, words), joined(moesaic_command({"doctor", "--json"}), options)));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  const Json json = Json::parse(result.out, "doctor");
  std::vector<std::string> cpus;
  for (std::int64_t rank = 0; rank < json.at("ranks").size(); ++rank) {
    cpus.push_back(json.at("ranks").at(rank).at("cpus").as_string());
  }
  return cpus;
}

TEST(Program, RanksShareAllCoresWhereNobodyHasBoundThem) {
  const Topology topology = read_topology();
  if (topology.cores.size() < 2) GTEST_SKIP() << "one core is bound to by no choice";
  const auto cores = static_cast<int>(topology.cores.size());
  if (cores < topology.machine_cores) GTEST_SKIP() << "Open MPI may take others";
  EXPECT_EQ(cpus_of_ranks({}), std::vector<std::string>(2, topology.cpuset));
  const std::vector<std::string> bound = cpus_of_ranks({"--bind-to", "core"});
  EXPECT_EQ(cpus_of_ranks({}, {"--pin", "off"}), bound);
  EXPECT_EQ(cpus_of_ranks({}, {"--threads", "1"}), bound);
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

}  // namespace
}  // namespace moesaic::test
