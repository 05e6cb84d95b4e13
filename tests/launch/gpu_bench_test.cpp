// Benchmarks of experts on GPUs, which are executed in software.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "tests/launch/fake_gpus.h"

namespace moesaic::test {
namespace {

TEST(GpuBench, measures_a_layer_with_some_experts_on_gpus) {
  const ProgramResult result = run_program(
      moesaic_command(layer_bench("4,32,32,2", "nvfp4,int8", "2", {"--gpu-experts", "3"})),
      on_fake_gpus());
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.err.find("in int8 is left out: GPUs have no kernels for int8"),
            std::string::npos)
      << result.text();
  EXPECT_EQ(lines_of(result.out).size(), 2U) << result.text();
}

/// One line of moesaic bench layer of 4 experts.
Json layer_line(int ranks, const Arguments& more, const Variables& gpus = {}) {
  const ProgramResult result = run_program(
      ranks_command(ranks, layer_bench("4,32,32,2", "nvfp4", "2",
                                       joined({"--isa", "scalar", "-o", "jsonl"}, more))),
      on_fake_gpus(gpus));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(lines_of(result.out).size(), 1U) << result.text();
  return Json::parse(lines_of(result.out)[0], "bench layer");
}

TEST(GpuBench, has_roofs_and_kernels_of_where_experts_are) {
  const Json all = layer_line(1, {"--gpu-experts", "all"});
  EXPECT_EQ(all.at("isa").as_string(), "sm_90/mma");
  EXPECT_EQ(all.at("gpu_experts").as_int(), 4);
  EXPECT_GT(all.at("roof_share").as_double(), 0);
  EXPECT_FALSE(all.contains("of_slower")) << "null: nothing runs beside them";
  EXPECT_FALSE(all.contains("cpu_only_us"));
  const Json none = layer_line(1, {"--gpu-experts", "none"});
  EXPECT_EQ(none.at("isa").as_string(), "scalar");
  EXPECT_FALSE(none.contains("gpu_only_us"));
  // What is executed in software reaches a thousandth of what the CPU does: it is the roof here.
  EXPECT_GT(all.at("roof_share").as_double() * all.at("us").as_double(),
            none.at("roof_share").as_double() * none.at("us").as_double());
}

TEST(GpuBench, runs_experts_of_each_place_alone) {
  const auto check = [](const Json& line, int on_gpus) {
    EXPECT_EQ(line.at("isa").as_string(), "scalar+sm_90/mma");
    EXPECT_EQ(line.at("gpu_experts").as_int(), on_gpus);
    const double gpu_us = line.at("gpu_only_us").as_double();
    const double cpu_us = line.at("cpu_only_us").as_double();
    EXPECT_GT(cpu_us, 0);
    EXPECT_NEAR(line.at("of_slower").as_double(),
                line.at("us").as_double() / std::max(gpu_us, cpu_us),
                0.01 * line.at("of_slower").as_double());
  };
  check(layer_line(1, {"--gpu-experts", "2"}), 2);
  check(layer_line(1, {"--gpu-experts", "2", "--gpu-graph", "on"}), 2);
  check(layer_line(2, {"--gpu-experts", "2"}, {{"MOESAIC_FAKE_GPUS", "2"}}), 2);
}

TEST(GpuBench, measures_products_of_every_format) {
  const auto bench = [](const Arguments& more) {
    return run_program(moesaic_command(joined(
                           {"bench", "kernels", "--device", "gpu", "--shapes", "48x64", "--seconds",
                            "0", "--footprint", "8K", "--rows", "1,9", "-o", "csv"},
                           more)),
                       on_fake_gpus());
  };
  const ProgramResult result = bench({"--formats", "nvfp4,bf16,int8"});
  EXPECT_EQ(result.exit_code, 0) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 5U) << result.text();
  EXPECT_TRUE(lines[0].starts_with("op,shape,format,isa,rows,threads,us,gops,weight_gbs,roof,"))
      << lines[0];
  EXPECT_TRUE(has_line(lines[2], "\"forward\",\"48x64\",\"nvfp4\",\"sm_90/mma\",\"9\",\"1\","))
      << lines[2];
  for (const std::string& line : {lines[1], lines[2], lines[3], lines[4]}) {
    EXPECT_LT(std::stod(line.substr(line.rfind(',') + 2)), 1e-2) << line;  // error
  }
  EXPECT_TRUE(has_line(result.err, "48x64 in int8 is left out: GPUs have no kernels for int8"))
      << result.err;
  EXPECT_TRUE(has_line(result.err, "roofs of GPU 0 \\(PTX machine, sm_90, mma\\): reads .* GB/s"))
      << result.err;
  EXPECT_NE(bench({"--formats", "nvfp4", "--numerics", "portable"}).out.find("sm_90/portable"),
            std::string::npos);
  expect_failure(bench({"--op", "outer"}), 2, {"--device gpu has no products of --op outer"});
  for (const std::string op : {"attention", "attention-backward"}) {
    expect_failure(bench({"--op", op}), 2, {"--op " + op + ": attention has no kernels for GPUs"});
  }
}

TEST(GpuBench, measures_products_with_activations_in_nvfp4) {
  const auto bench = [](const Arguments& more, const std::string& chip) {
    return run_program(
        moesaic_command(joined({"bench", "kernels", "--device", "gpu", "--shapes", "48x96",
                                "--seconds", "0", "--footprint", "8K", "--rows", "1,33", "-o",
                                "csv", "--formats", "nvfp4,bf16", "--nvfp4-activations", "nvfp4"},
                               more)),
        on_fake_gpus({{"MOESAIC_FAKE_CHIP", chip}}));
  };
  const ProgramResult scaled = bench({}, "120");
  EXPECT_EQ(scaled.exit_code, 0) << scaled.text();
  const std::vector<std::string> lines = lines_of(scaled.out);
  ASSERT_EQ(lines.size(), 5U) << scaled.text();
  EXPECT_TRUE(has_line(lines[2], "\"48x96\",\"nvfp4\",\"sm_120/block_scaled\",\"33\","))
      << lines[2];
  EXPECT_TRUE(has_line(lines[4], "\"48x96\",\"bf16\",\"sm_120/mma\",\"33\",")) << lines[4];
  for (const std::string& line : {lines[1], lines[2], lines[3], lines[4]}) {
    EXPECT_LT(std::stod(line.substr(line.rfind(',') + 2)), 1e-4) << line;  // error
  }
  EXPECT_TRUE(has_line(scaled.err,
                       "roofs of GPU 0 .*, products of block_scaled .* GOP/s, products "
                       "of mma .* GOP/s"))
      << scaled.err;
  const ProgramResult portable = bench({"--numerics", "portable"}, "90");
  ASSERT_EQ(lines_of(portable.out).size(), 5U) << portable.text();
  const std::string line = lines_of(portable.out)[2];
  EXPECT_TRUE(has_line(line, "\"nvfp4\",\"sm_90/portable\",\"33\",")) << line;
  EXPECT_LT(std::stod(line.substr(line.rfind(',') + 2)), 1e-4) << line;
  const ProgramResult other = bench({}, "90");
  EXPECT_EQ(lines_of(other.out).size(), 3U) << other.text();
  EXPECT_TRUE(has_line(other.err,
                       "48x96 in nvfp4 is left out: GPU 0 .* does not multiply "
                       "activations in nvfp4, sm_120 and sm_121 do"))
      << other.err;
}

TEST(GpuBench, refuses_options_of_gpus_on_the_cpu) {
  const auto bench = [](const Arguments& more) {
    return run_moesaic(joined({"bench", "kernels", "--shapes", "48x96", "--seconds", "0"}, more));
  };
  expect_failure(bench({"--nvfp4-activations", "nvfp4"}), 2,
                 {"--nvfp4-activations nvfp4 is for --device gpu"});
  expect_failure(bench({"--gpu-kernel", "cutlass"}), 2,
                 {"--gpu-kernel cutlass is for --device gpu"});
}

}  // namespace
}  // namespace moesaic::test
