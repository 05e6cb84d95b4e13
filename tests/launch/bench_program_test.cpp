// The verbs bench model, layer and sft through the program, with the least of everything:
// what is printed counts, not the figures.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>

#include "tests/launch/bench_program.h"

namespace moesaic::test {
namespace {

Arguments bench_layer(const Arguments& more) {
  return joined(
      {"bench", "layer", "--layer", "8,64,32,2", "--seconds", "0.001", "--footprint", kFootprint},
      more);
}

Arguments bench_model(const Arguments& more) {
  return joined({"bench", "model", "-m", kDemo, "-r", "2"}, more);
}

TEST(BenchModel, KeepsToTheMemoryLimit) {
  const ProgramResult result =
      run_moesaic(bench_model({"-p", "16", "-n", "0", "-t", "1", "--memory-limit", "64M"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, 400 << 10);  // KiB, of the largest so far; without a limit 1 GiB
  const ProgramResult doctor = run_moesaic({"doctor", "--memory-limit", "1G"});
  EXPECT_NE(doctor.out.find("memory: 1.00 GiB available (--memory-limit)"), std::string::npos)
      << doctor.text();
}

TEST(Doctor, RefusesAMemoryLimitThatItCannotKeep) {
  const TemporaryDirectory directory;
  const std::string machine = directory.path_of("machine.json");
  for (const auto& [arguments, what] : std::vector<std::pair<Arguments, std::string>>{
           {{"--memory-limit", "8M"}, "--memory-limit 8M: not enough memory: self-tests"},
           {{"--memory-limit", "50M", "--measure", machine},
            "--memory-limit 50M: not enough memory: measurements"}}) {
    const ProgramResult doctor = run_moesaic(joined({"doctor", "-t", "1"}, arguments));
    EXPECT_EQ(doctor.exit_code, 4) << doctor.text();
    EXPECT_EQ(doctor.out, "");
    EXPECT_NE(doctor.err.find(what), std::string::npos) << doctor.text();
    EXPECT_NE(doctor.err.find("M would do"), std::string::npos) << doctor.text();
  }
  EXPECT_FALSE(std::filesystem::exists(machine));
}

TEST(BenchModel, HasALineForEachCombination) {
  const Json table =
      parse_table(run_ranks(2, bench_model({"-p", "16,8", "-n", "4,2", "--prompt-gen", "8,3", "-pg",
                                            "4,2", "-t", "1,2", "-b", "8", "-o", "json"})));
  ASSERT_EQ(table.size(), 12);
  std::vector<std::string> tests;
  table.for_each([&](const std::string&, const Json& line) {
    EXPECT_EQ(line.at("n_ranks").as_int(), 2);
    EXPECT_EQ(line.at("n_batch").as_int(), 8);
    EXPECT_EQ(line.at("n_threads").as_int(), tests.size() < 6 ? 1 : 2);
    EXPECT_EQ(line.at("samples_ts").size(), 2);
    EXPECT_GT(line.at("avg_ts").as_double(), 0);
    EXPECT_GT(line.at("flops_share").as_double(), 0);
    EXPECT_EQ(line.at("memory_share").as_double() > 0, line.at("n_prompt").as_int() == 0);
    tests.push_back(std::to_string(line.at("n_prompt").as_int()) + "+" +
                    std::to_string(line.at("n_gen").as_int()));
  });
  const std::vector<std::string> once = {"16+0", "8+0", "0+4", "0+2", "8+3", "4+2"};
  EXPECT_EQ(std::vector<std::string>(tests.begin(), tests.begin() + 6), once);
  EXPECT_EQ(std::vector<std::string>(tests.begin() + 6, tests.end()), once);
}

TEST(BenchModel, TakesTokensOfAText) {
  const ProgramResult result = run_ranks(
      2, bench_model({"-p", "300", "-n", "0", "--text", kData + "/demo-prompts.txt", "--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(Json::parse(result.out, "line").at("n_prompt").as_int(), 300);
  expect_failure(run_ranks(2, bench_model({"--text", "/nope"})), 3, {"/nope"});
}

TEST(BenchModel, LongTestsAreBoundedAndNoted) {
  expect_failure(run_moesaic(bench_model({"-p", "10000000"})), 2, {"--n-prompt", "1048576"});
  expect_failure(run_moesaic(bench_model({"-p", "0", "-n", "0"})), 2, {"--n-prompt", "--n-gen"});
  expect_failure(run_moesaic(bench_model({"-pg", "5"})), 2, {"--prompt-gen", "512,64"});
  const ProgramResult result = run_moesaic(bench_model({"-p", "2100", "-n", "0", "-r", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.err.find("2100"), std::string::npos) << result.err;
}

TEST(BenchSft, MeasuresAStepOnAllRanks) {
  const Json table = parse_table(
      run_ranks(2, {"bench", "sft", "-m", kDemo, "--step-tokens", "40", "--sample-tokens", "16",
                    "--lora-rank", "2", "-r", "2", "-t", "1", "-b", "24", "-o", "json"}));
  ASSERT_EQ(table.size(), 1);
  const Json line = table.at(std::int64_t{0});
  std::string keys;
  line.for_each([&](const std::string& key, const Json&) { keys += key + " "; });
  EXPECT_EQ(keys,
            "layers hidden experts intermediate topk ranks threads isa precision expert_format "
            "routing tokens sample_tokens batch_size tokens_per_second forward_seconds "
            "backward_seconds exchange_seconds sum_seconds exposed_sum_seconds optimizer_seconds "
            "gops roof_share peak_bytes ");
  EXPECT_EQ(line.at("sample_tokens").as_int(), 16);
  EXPECT_EQ(line.at("batch_size").as_int(), 24);
  EXPECT_EQ(line.at("ranks").as_int(), 2);
  EXPECT_EQ(line.at("tokens").as_int(), 40);
  EXPECT_EQ(line.at("expert_format").as_string(), "bf16");
  for (const char* part : {"forward_seconds", "backward_seconds", "exchange_seconds", "sum_seconds",
                           "optimizer_seconds", "gops", "peak_bytes"}) {
    EXPECT_GT(line.at(part).as_double(), 0) << part;
  }
  EXPECT_GT(line.at("roof_share").as_double(), 0);
  EXPECT_LT(line.at("roof_share").as_double(), 1);
  const double seconds = 40 / line.at("tokens_per_second").as_double();
  EXPECT_LE(line.at("forward_seconds").as_double() + line.at("backward_seconds").as_double() +
                line.at("exposed_sum_seconds").as_double() +
                line.at("optimizer_seconds").as_double(),
            seconds * 1.01);
  expect_failure(run_moesaic({"bench", "sft", "-m", kDemo, "--step-tokens", "1"}), 2,
                 {"--step-tokens"});
}

TEST(Benchmarks, JsonIsOneObjectALine) {
  for (const Arguments& arguments :
       {bench_model({"-p", "4", "-n", "2"}),
        bench_kernels({"--formats", "bf16", "--rows", "1,2", "-t", "1"}),
        bench_layer({"--formats", "bf16", "--tokens", "1,2", "--routing", "even", "-t", "1"})}) {
    const ProgramResult result = run_moesaic(joined(arguments, {"--json"}));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    EXPECT_EQ(lines_of(result.out).size(), 2U) << result.text();
    for (const std::string& line : lines_of(result.out)) {
      EXPECT_TRUE(Json::parse(line, "line").is_object());
    }
    EXPECT_EQ(parse_table(run_moesaic(joined(arguments, {"--json", "-o", "json"}))).size(), 2);
    expect_failure(run_moesaic(joined(arguments, {"--json", "-o", "csv"})), 2, {"--json"});
  }
}

/// Interrupts a benchmark after its first line: it ends with what is there.
void expect_lines_as_they_come(const Arguments& arguments, std::size_t all_lines) {
  RunningProgram program(moesaic_command(joined(arguments, {"-o", "jsonl"})));
  ASSERT_TRUE(program.wait_until([&] { return !lines_of(program.out()).empty(); }));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 6) << result.text();
  EXPECT_NE(result.err.find("interrupted (SIGINT)"), std::string::npos) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_LT(lines.size(), all_lines);
  for (const std::string& line : lines) EXPECT_TRUE(Json::parse(line, "line").is_object());
}

TEST(Benchmarks, LinesArePrintedWhenTheyAreThere) {
  expect_lines_as_they_come(bench_kernels({"--formats", "all", "--rows", "1,2", "-t", "1,2"}), 48);
  expect_lines_as_they_come(
      bench_layer({"--formats", "all", "--tokens", "1", "--routing", "even", "-t", "1"}), 12);
  expect_lines_as_they_come(
      bench_model({"-p", "256,255,254,253,252,251,250,249", "-n", "0", "-r", "20"}), 8);
}

TEST(Benchmarks, SayHowLongTheyTake) {
  const ProgramResult kernels =
      run_moesaic(bench_kernels({"--formats", "bf16", "--rows", "1,2", "-t", "1"}));
  EXPECT_NE(kernels.err.find("2 lines in about "), std::string::npos) << kernels.err;
  const ProgramResult layer = run_moesaic(
      bench_layer({"--formats", "bf16", "--tokens", "1", "--routing", "even", "-t", "1"}));
  EXPECT_NE(layer.err.find("1 line in about "), std::string::npos) << layer.err;
}

/// Bytes of a row and its tag between nodes of one rank, of the layer and of the exchange that is
/// measured beside it, for hidden 64, top-2.
std::set<double> layer_row_bytes(const Arguments& format) {
  const TemporaryDirectory directory;
  RunningProgram program(ranks_command(
      2, bench_layer(joined({"--tokens", "16", "--routing", "even", "--seconds", "1000", "-t", "1",
                             "--ranks-per-node", "1", "--trace-dir", directory.path()},
                            format))));
  std::set<double> bytes;
  std::set<std::int64_t> sent;  // events; both exchanges are in turn
  EXPECT_TRUE(program.wait_until([&] {
    const std::string file = directory.path_of("rank-0.jsonl");
    if (!std::filesystem::exists(file)) return false;
    for (const std::string& text : lines_of(read_text(file))) {
      if (text.find('}') == std::string::npos) continue;  // it is being written
      const Json event = Json::parse(text, "event");
      const bool is_sent = event.at("what").as_string() == "start" &&
                           event.at("phase").as_string() == "rows" && event.at("rows").as_int() > 0;
      if (!is_sent) continue;
      sent.insert(event.at("event").as_int());
      bytes.insert(event.at("bytes").as_double() / event.at("rows").as_double());
    }
    return sent.size() >= 8;
  })) << program.err();
  return bytes;
}

TEST(BenchLayer, RowsTravelAsThoseOfAModel) {
  constexpr double kTag = 8;
  const std::set<double> whole = {128 + kTag};
  const std::set<double> codes = {64 + 4 + kTag};
  EXPECT_EQ(layer_row_bytes({"--formats", "bf16"}), whole);
  EXPECT_EQ(layer_row_bytes({"--formats", "int8"}), codes);
  EXPECT_EQ(layer_row_bytes({"--formats", "int4_group128"}), whole);
  EXPECT_EQ(layer_row_bytes({"--formats", "int4_group128", "--int4-activations", "int8"}), codes);
}

TEST(BenchLayer, HasALineForEachCombination) {
  const Json table = parse_table(
      run_moesaic(bench_layer({"--formats", "bf16,int4", "--tokens", "1,20", "-o", "json"})));
  ASSERT_EQ(table.size(), 8);
  EXPECT_EQ(table.at(0).at("routing").as_string(), "even");
  EXPECT_EQ(table.at(7).at("routing").as_string(), "skewed");
  EXPECT_EQ(table.at(7).at("tokens").as_int(), 20);
  table.for_each([](const std::string&, const Json& line) {
    EXPECT_EQ(line.at("experts").as_int(), 8);
    EXPECT_EQ(line.at("hidden").as_int(), 64);
    EXPECT_EQ(line.at("intermediate").as_int(), 32);
    EXPECT_EQ(line.at("topk").as_int(), 2);
    EXPECT_EQ(line.at("ranks").as_int(), 1);
    const double us = line.at("us").as_double();
    const double operations = 6.0 * 64 * 32 * 2 * line.at("tokens").as_double();
    EXPECT_NEAR(line.at("gops").as_double(), operations / us / 1e3,
                0.002 * line.at("gops").as_double() + 1e-3);
    EXPECT_NEAR(line.at("share_of_parts").as_double(), line.at("predicted_us").as_double() / us,
                0.01 * line.at("share_of_parts").as_double() + 1e-3);
    EXPECT_GT(line.at("roof_share").as_double(), 0);
  });
}

TEST(BenchLayer, KeysAreThoseOfThePage) {
  const ProgramResult result =
      run_moesaic(bench_layer({"--formats", "f32", "--tokens", "3", "-o", "csv"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(keys_of(result.out),
            "experts,hidden,intermediate,topk,routing,tokens,format,isa,threads,us,gops,roof_share,"
            "ranks,predicted_us,share_of_parts,exchange_us,exposed_us,hidden_share,gpu_experts,"
            "gpu_only_us,cpu_only_us,of_slower");
}

TEST(BenchLayer, RunsOnManyRanks) {
  for (const Arguments& more : {Arguments{}, Arguments{"--expert-replicas", "2"}}) {
    Arguments arguments =
        bench_layer({"--formats", "nvfp4", "--tokens", "1,5", "--check-comm", "-o", "jsonl"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_ranks(4, arguments);
    ASSERT_EQ(result.exit_code, 0) << result.text();
    const Json line = Json::parse(result.out.substr(0, result.out.find('\n')), "line 1");
    EXPECT_EQ(line.at("ranks").as_int(), 4);
    const double exposed = line.at("us").as_double() - line.at("predicted_us").as_double();
    EXPECT_NEAR(line.at("exposed_us").as_double(), exposed, 0.01 * line.at("us").as_double());
    EXPECT_NEAR(line.at("hidden_share").as_double(),
                1 - exposed / line.at("exchange_us").as_double(),
                0.02 * line.at("us").as_double() / line.at("exchange_us").as_double());
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 4);
  }
}

TEST(BenchLayer, LayersThatDoNotFitAreLeftOutWithAWarning) {
  const ProgramResult result =
      run_moesaic(bench_layer({"--layer", "100000,131072,131072,8,8,64,32,2", "--formats", "mxfp4",
                               "--tokens", "1", "--routing", "even", "-o", "json"}));
  EXPECT_EQ(parse_table(result).size(), 1);
  EXPECT_NE(result.err.find("100000,131072,131072,8 in mxfp4 is left out"), std::string::npos)
      << result.text();
}

TEST(BenchLayer, WrongOptionsAreToldOnce) {
  const auto expect_error = [](const Arguments& more, const std::string& part) {
    const ProgramResult result = run_ranks(2, bench_layer(more));
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_EQ(result.error_lines(), 1) << result.text();
    EXPECT_NE(result.err.find(part), std::string::npos) << result.text();
  };
  expect_error({"--layer", "8,64,32"}, "--layer: \"8,64,32\"");
  expect_error({"--routing", "random"}, "--routing: \"random\"");
  expect_error({"--tokens", "0"}, "--tokens: 0 is less than 1");
  expect_error({"--layer", "1,64,32,1"}, "2 ranks cannot share 1 experts");
}

}  // namespace
}  // namespace moesaic::test
