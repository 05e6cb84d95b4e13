// --gpu-graph on, seen from outside: the bytes that the program has without it, on GPUs that are
// executed in software.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/fake_gpus.h"

namespace moesaic::test {
namespace {

const Arguments kOn = {"--gpu-graph", "on"};

class GpuGraphs : public FakeGpus {
 protected:
  /// Logits with graphs and without, which are told to be there.
  void expect_same(int ranks, const Arguments& arguments,
                   const Variables& variables = on_fake_gpus()) {
    const Run off = run(ranks_command(ranks, score(arguments)), variables);
    const Run on = run(ranks_command(ranks, score(joined(arguments, kOn))), variables);
    EXPECT_TRUE(on.logits == off.logits) << ranks << " ranks";
    EXPECT_NE(on.told.find("batches of up to 256 rows are planned on GPUs, each one graph\n"),
              std::string::npos)
        << on.told;
    EXPECT_EQ(off.told.find("graph"), std::string::npos) << off.told;
  }
};

TEST_F(GpuGraphs, give_the_bytes_of_the_cpu_on_any_number_of_ranks) {
  for (const std::string format : {"nvfp4", "mxfp4", "bf16"}) {
    const std::string cpu = run_score(1, portable(format, "none")).logits;
    EXPECT_TRUE(run_score(1, joined(portable(format, "all"), kOn)).logits == cpu) << format;
    EXPECT_TRUE(run_score(2, joined(portable(format, "5"), kOn)).logits == cpu) << format;
    EXPECT_TRUE(run_score(3, joined(portable(format, "all"), kOn)).logits == cpu) << format;
  }
}

TEST_F(GpuGraphs, have_the_bits_of_tensor_cores) {
  const Arguments native = {"--isa", "scalar", "--expert-format", "nvfp4"};
  expect_same(1, joined(native, {"--gpu-experts", "all", "--batch-size", "3"}));
  expect_same(2, joined(native, {"--gpu-experts", "6"}));
}

TEST_F(GpuGraphs, take_activations_in_nvfp4) {
  const Arguments rounded = {"--nvfp4-activations", "nvfp4"};
  expect_same(1, joined(portable("nvfp4", "all"), rounded));
  expect_same(
      2, joined({"--isa", "scalar", "--expert-format", "nvfp4", "--gpu-experts", "3"}, rounded),
      on_fake_gpus({{"MOESAIC_FAKE_CHIP", "120"}}));
}

TEST_F(GpuGraphs, go_with_deferred_choices_and_masks) {
  const std::string mask = file("mask.json", R"({"0": [3, 1, 4, 15, 9], "2": [6], "4": [0, 5]})");
  expect_same(2, joined(portable("mxfp4", mask), {"--defer", "1"}));
}

TEST_F(GpuGraphs, are_named_in_errors) {
  const auto fails = [&](const std::string& which, const std::string& variable,
                         const std::string& value) {
    return run_program(
        moesaic_command(score(joined(joined(portable("nvfp4", which), {"--timeout", "1"}), kOn))),
        on_fake_gpus({{variable, value}}));
  };
  expect_failure(fails("all", "MOESAIC_FAKE_FAILS", "1"), 4,
                 {"layer 0",
                  "kernels plan of rows/plan, gate_up of portable/nvfp4, down of portable/nvfp4, "
                  "combine of rows/rows",
                  "CUDA_ERROR_LAUNCH_FAILED"});
  expect_failure(
      fails("9", "MOESAIC_FAKE_HANGS", "2"), 5,
      {"layer 0", "has not finished kernels plan of rows/plan, gate_up of", "within 1 s"});
}

TEST_F(GpuGraphs, without_experts_on_gpus_are_refused) {
  for (const Arguments& verb : std::vector<Arguments>{score({}),
                                                      {"bench", "layer", "--layer", "4,32,32,2"},
                                                      {"plan", "-m", kDemo, "--ranks", "2"}}) {
    expect_failure(run_moesaic(joined(verb, kOn)), 2,
                   {"--gpu-graph on is for experts on GPUs: --gpu-experts says which"});
  }
  expect_failure(run_moesaic(joined(score({}), {"--gpu-graph", "maybe"})), 2,
                 {"--gpu-graph", "maybe", "on"});
}

TEST(GpuGraphPlan, counts_the_memory_of_graphs) {
  const auto plan = [](const Arguments& more) {
    const ProgramResult result = run_moesaic(
        joined({"plan", "-m", kDemo, "--ranks", "2", "--gpu-experts", "all", "--json"}, more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return Json::parse(result.out, "plan");
  };
  const Json off = plan({});
  const Json on = plan(kOn);
  EXPECT_GT(on.at("gpu").at("rows").as_int(), off.at("gpu").at("rows").as_int());
  EXPECT_EQ(on.at("gpu").at("expert").as_int(), off.at("gpu").at("expert").as_int());
  EXPECT_GT(on.at("items").at("activation").as_int(), off.at("items").at("activation").as_int());
}

TEST(GpuGraphBench, measures_a_layer) {
  const ProgramResult result =
      run_program(moesaic_command(layer_bench("4,32,32,2,8,64,32,3", "nvfp4", "2,5",
                                              {"--gpu-experts", "all", "--gpu-graph", "on"})),
                  on_fake_gpus());
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(lines_of(result.out).size(), 5U) << result.text();
}

}  // namespace
}  // namespace moesaic::test
