// The verb bench kernels through the program, with the least of everything: what is printed counts,
// not the figures.

#include <gtest/gtest.h>

#include "tests/launch/bench_program.h"

namespace moesaic::test {
namespace {

TEST(BenchKernels, HasALineForEachCombination) {
  const Json table = parse_table(run_moesaic(
      bench_kernels({"--formats", "bf16,int8", "--rows", "1,33", "-t", "1,2", "-o", "json"})));
  ASSERT_EQ(table.size(), 8);
  const Json first = table.at(0);
  EXPECT_EQ(first.at("shape").as_string(), "40x96");
  EXPECT_EQ(first.at("format").as_string(), "bf16");
  EXPECT_EQ(first.at("rows").as_int(), 1);
  EXPECT_EQ(first.at("threads").as_int(), 1);
  EXPECT_EQ(table.at(7).at("format").as_string(), "int8");
  EXPECT_EQ(table.at(7).at("rows").as_int(), 33);
  EXPECT_EQ(table.at(7).at("threads").as_int(), 2);
  table.for_each([](const std::string&, const Json& line) {
    const double us = line.at("us").as_double();
    const double operations = 2.0 * 40 * 96 * line.at("rows").as_double();
    EXPECT_NEAR(line.at("gops").as_double(), operations / us / 1e3,
                0.002 * line.at("gops").as_double() + 1e-3);
    EXPECT_GT(line.at("weight_gbs").as_double(), 0);
    EXPECT_GT(line.at("roof_share").as_double(), 0);
    EXPECT_LT(line.at("error").as_double(), 0.03);
    const std::string roof = line.at("roof").as_string();
    EXPECT_TRUE(roof == "compute" || roof == "memory") << roof;
  });
}

TEST(BenchKernels, KeysAreThoseOfThePage) {
  const ProgramResult result =
      run_moesaic(bench_kernels({"--formats", "bf16", "--rows", "2", "-t", "1", "-o", "csv"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(keys_of(result.out),
            "op,shape,format,isa,rows,threads,us,gops,weight_gbs,roof,roof_share,error");
}

TEST(BenchKernels, MeasuresProductsOfABackwardPass) {
  for (const std::string op : {"transposed", "outer"}) {
    const Json table = parse_table(run_moesaic(bench_kernels(
        {"--op", op, "--formats", "bf16,f32", "--rows", "3,40", "-t", "1,2", "-o", "json"})));
    ASSERT_EQ(table.size(), 8);
    table.for_each([&](const std::string&, const Json& line) {
      EXPECT_EQ(line.at("op").as_string(), op);
      EXPECT_GT(line.at("gops").as_double(), 0);
      EXPECT_LT(line.at("error").as_double(), 0.01);
    });
  }
  const Json table = parse_table(run_moesaic(bench_kernels(
      {"--op", "transposed", "--formats", "int8,nvfp4", "--rows", "5", "-t", "1", "-o", "json"})));
  ASSERT_EQ(table.size(), 2);
  for (const std::int64_t line : {0, 1}) EXPECT_LT(table.at(line).at("error").as_double(), 0.01);
  const ProgramResult none =
      run_moesaic(bench_kernels({"--op", "outer", "--formats", "int8", "--rows", "1"}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("--formats"), std::string::npos) << none.text();
}

struct AttentionOptions {
  std::string shapes = "8x1x24";
  std::string rows = "1,9";
  std::string formats = "bf16,f32";
};

ProgramResult bench_attention(const AttentionOptions& options, const std::string& form) {
  return run_moesaic({"bench",        "kernels",       "--op",     "attention", "--shapes",
                      options.shapes, "--keys",        "70,1100",  "--rows",    options.rows,
                      "--formats",    options.formats, "-t",       "1,2",       "--seconds",
                      "0.001",        "--footprint",   kFootprint, "-o",        form});
}

TEST(BenchKernels, MeasuresAttention) {
  const Json table = parse_table(bench_attention({}, "json"));
  ASSERT_EQ(table.size(), 16);
  table.for_each([](const std::string&, const Json& line) {
    EXPECT_EQ(line.at("op").as_string(), "attention");
    EXPECT_EQ(line.at("shape").as_string(), "8x1x24");
    const double keys = line.at("keys").as_double();
    const double rows = line.at("rows").as_double();
    const double operations = 4 * 8 * 24 * (rows * keys - rows * (rows - 1) / 2);
    EXPECT_NEAR(line.at("gops").as_double() * line.at("us").as_double() * 1e3, operations,
                0.005 * operations);
    EXPECT_GT(line.at("read_gbs").as_double(), 0);
    EXPECT_GT(line.at("roof_share").as_double(), 0);
    EXPECT_LT(line.at("error").as_double(), line.at("format").as_string() == "f32" ? 1e-5 : 0.02);
  });
  EXPECT_EQ(keys_of(bench_attention({}, "csv").out),
            "op,shape,keys,rows,format,isa,threads,us,gops,read_gbs,roof,roof_share,error");
}

TEST(BenchKernels, MeasuresAttentionBackward) {
  const ProgramResult result = run_moesaic(
      {"bench",     "kernels", "--op",        "attention-backward", "--shapes", "4x2x24", "--keys",
       "30,70",     "--rows",  "100",         "--formats",          "bf16,f32", "-t",     "2",
       "--seconds", "0.001",   "--footprint", kFootprint,           "-o",       "json"});
  const Json table = parse_table(result);
  ASSERT_EQ(table.size(), 4);
  table.for_each([](const std::string&, const Json& line) {
    EXPECT_EQ(line.at("op").as_string(), "attention-backward");
    // 100 tokens: samples of 30, 30, 30 and 10, or of 70 and 30.
    const double seen = line.at("keys").as_double() == 30 ? 3 * 465 + 55 : 2485 + 465;
    EXPECT_NEAR(line.at("gops").as_double() * line.at("us").as_double() * 1e3, 10 * 4 * 24 * seen,
                0.05 * seen * 4 * 24);
    EXPECT_GT(line.at("roof_share").as_double(), 0);
    EXPECT_LT(line.at("error").as_double(), line.at("format").as_string() == "f32" ? 1e-5 : 0.02);
  });
}

TEST(BenchKernels, AttentionRefusesWhatItCannotMeasure) {
  const auto expect_refused = [](const AttentionOptions& options, const std::string& option) {
    const ProgramResult result = bench_attention(options, "csv");
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_NE(result.err.find(option), std::string::npos) << result.text();
  };
  expect_refused({.shapes = "8x3x24"}, "--shapes");
  expect_refused({.shapes = "deepseek-v3"}, "--shapes");
  expect_refused({.rows = "71"}, "--rows");
  expect_refused({.formats = "int8"}, "--formats");
}

TEST(BenchKernels, KeysAreOfAttentionAlone) {
  const auto keys_of_op = [](const std::string& op, const std::string& device) {
    return run_moesaic({"bench", "kernels", "--op", op, "--device", device, "--shapes", "32x32",
                        "--keys", "64", "--seconds", "0", "--footprint", kFootprint});
  };
  for (const std::string op : {"forward", "transposed", "outer"}) {
    expect_failure(keys_of_op(op, "cpu"), 2,
                   {"--keys is for --op attention and attention-backward, not --op " + op});
  }
  expect_failure(keys_of_op("forward", "gpu"), 2, {"--keys is for --op attention"});
}

TEST(BenchKernels, EveryInstructionSetHasALineOfItsOwn) {
  const Json table = parse_table(run_moesaic(bench_kernels(
      {"--formats", "int4_group64", "--rows", "3", "-t", "1", "--isa", "all", "-o", "json"})));
  ASSERT_GE(table.size(), 1);
  EXPECT_EQ(table.at(0).at("isa").as_string(), "scalar");
  EXPECT_EQ(table.at(0).at("format").as_string(), "int4_group64");
  const double error = table.at(0).at("error").as_double();
  table.for_each([&](const std::string&, const Json& line) {
    if (line.at("isa").as_string() == "avx512_bf16") return;  // an order of its own
    EXPECT_EQ(line.at("error").as_double(), error) << line.at("isa").as_string();
  });
}

TEST(BenchKernels, MeasuresInt8ActivationsIfAsked) {
  const ProgramResult result =
      run_moesaic(bench_kernels({"--formats", "int4_group128", "--int4-activations", "int8",
                                 "--rows", "3", "-t", "1", "--isa", "all", "-o", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.text();
  const Json table = Json::parse(result.out, "table");
  const double error = table.at(0).at("error").as_double();
  EXPECT_GT(error, 1e-3);
  EXPECT_LT(error, 0.03);
  table.for_each([&](const std::string&, const Json& line) {
    EXPECT_NE(line.at("isa").as_string(), "avx512_bf16");
    EXPECT_EQ(line.at("error").as_double(), error) << line.at("isa").as_string();
  });
}

TEST(BenchKernels, RivalStandsBesideOrIsMissed) {
  const ProgramResult result =
      run_moesaic(bench_kernels({"--formats", "bf16,int8,nvfp4", "--rows", "4", "-t", "1",
                                 "--rival", "onednn", "-o", "json"}));
  if (result.exit_code != 0) {
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_NE(result.err.find("libdnnl-dev"), std::string::npos) << result.text();
    return;
  }
  const Json table = Json::parse(result.out, "table");
  ASSERT_EQ(table.size(), 5);  // it has no nvfp4
  for (const std::int64_t line : {1, 3}) {
    EXPECT_EQ(table.at(line).at("isa").as_string(), "onednn");
    EXPECT_LT(table.at(line).at("error").as_double(), 0.03);
  }
}

TEST(BenchKernels, AMemoryLimitThatIsTooLowIsNamed) {
  const std::vector<Arguments> benches = {
      {"--shapes", "4096x4096", "--formats", "f32"},
      {"--shapes", "2048x2048", "--formats", "bf16", "--op", "outer"},
      {"--op", "attention", "--shapes", "64x64x128", "--keys", "2048", "--rows", "1"}};
  for (const Arguments& bench : benches) {
    const ProgramResult result = run_moesaic(
        joined({"bench", "kernels", "--seconds", "0", "-t", "1", "--memory-limit", "48M"}, bench));
    EXPECT_EQ(result.exit_code, 4) << result.text();
    EXPECT_EQ(result.error_lines(), 1) << result.text();
    EXPECT_NE(result.err.find("--memory-limit 48M: not enough memory"), std::string::npos)
        << result.text();
    EXPECT_EQ(result.err.find("--footprint"), std::string::npos) << result.text();
  }
  // What it says would do does.
  const Arguments small = {
      "bench",  "kernels", "--seconds", "0",      "-t", "1",  "--op", "attention",     "--shapes",
      "8x8x64", "--keys",  "8192",      "--rows", "1",  "-o", "json", "--memory-limit"};
  const std::string error = run_moesaic(joined(small, {"24M"})).err;
  const std::size_t at = error.find("; --memory-limit ");
  ASSERT_NE(at, std::string::npos) << error;
  const std::size_t value = at + std::string_view("; --memory-limit ").size();
  const std::string limit = error.substr(value, error.find(' ', value) - value);
  EXPECT_EQ(run_moesaic(joined(small, {limit})).exit_code, 0) << limit;
}

TEST(BenchKernels, WrongOptionsAreNamed) {
  const auto expect_error = [](const Arguments& more, const std::string& part) {
    const ProgramResult result = run_moesaic(bench_kernels(more));
    EXPECT_EQ(result.exit_code, 2) << result.text();
    EXPECT_EQ(result.error_lines(), 1) << result.text();
    EXPECT_NE(result.err.find(part), std::string::npos) << result.text();
  };
  expect_error({"--shapes", "qwen"}, "--shapes: \"qwen\"");
  expect_error({"--formats", "bf17"}, "did you mean bf16?");
  expect_error({"--rows", "1,0"}, "--rows: 0 is less than 1");
  expect_error({"--threads", "1,x"}, "--threads: \"x\"");
  expect_error({"--isa", "avx1024"}, "--isa: \"avx1024\"");
  expect_error({"--footprint", "much"}, "--footprint: \"much\"");
  expect_error({"--rival", "mkl"}, "--rival: \"mkl\"");
  expect_error({"--shapes", "4096x4096", "--formats", "bf16"}, "--footprint");
  expect_error({"--shapes", "1024x1024", "--formats", "bf16", "--op", "outer", "--footprint", "3M"},
               "a result of 4.00 MiB does not fit into --footprint 3.00 MiB");
  expect_error({"--tokens", "1"}, "--tokens is no option of moesaic bench kernels");
}

TEST(BenchKernels, RanksAreRefused) {
  const ProgramResult result = run_ranks(2, bench_kernels({}));
  EXPECT_EQ(result.exit_code, 2) << result.text();
  EXPECT_EQ(result.error_lines(), 1) << result.text();
}

}  // namespace
}  // namespace moesaic::test
