// --gpu-kernel cutlass, seen from outside: the library is one of plain loops, over a driver whose
// GPUs are executed in software.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "src/checkpoint/checkpoint.h"
#include "tests/launch/fake_gpus.h"
#include "tests/launch/sparse_model.h"
#include "tests/parallel/test_machine.h"
#include "tests/support/quantized_checkpoint.h"

namespace moesaic::test {
namespace {

/// Logits of a model whose experts have sizes that CUTLASS takes.
class CutlassExperts : public FakeGpus {
 protected:
  CutlassExperts() {
    write_sparse_model(plain_, {.layers = 2,
                                .hidden = 128,
                                .experts = 6,
                                .width = 256,
                                .topk = 2,
                                .vocab = 2048,
                                .computes = true});
    quantize_checkpoint(plain_, {.format = Format::nvfp4}, is_expert_weight, model_);
  }

  [[nodiscard]] Arguments score_with(const Arguments& more) const {
    return joined(score({"-m", model_, "--isa", "scalar", "--nvfp4-activations", "nvfp4"}), more);
  }
  [[nodiscard]] Arguments cutlass(const std::string& which, const Arguments& more = {}) const {
    return joined(score_with({"--gpu-experts", which, "--gpu-kernel", "cutlass", "--cutlass",
                              MOESAIC_FAKE_CUTLASS}),
                  more);
  }
  [[nodiscard]] static Variables blackwell(const std::string& chip = "100") {
    return on_fake_gpus({{"MOESAIC_FAKE_CHIP", chip}});
  }
  [[nodiscard]] Run run_ranks_of(int ranks, const Arguments& arguments) {
    return run(ranks_command(ranks, arguments), blackwell());
  }
  /// Adds the scales of activations that a checkpoint of ModelOpt has.
  void add_input_scales() const {
    std::map<std::string, float> scales;
    const Checkpoint checkpoint = Checkpoint::open(model_);
    for (const TensorView* const tensor : checkpoint.tensors()) {
      if (!tensor->name.ends_with("_scale_2")) continue;
      scales[tensor->name.substr(0, tensor->name.rfind(".weight")) + ".input_scale"] = 0.001F;
    }
    add_scalars(model_, scales);
  }

  TemporaryDirectory models_;
  std::string plain_ = models_.path_of("plain");
  std::string model_ = models_.path_of("nvfp4");
};

/// The numbers of such a file: of tokens, which are small, and logits.
std::vector<float> numbers_of(const std::string& file) {
  std::uint64_t header = 0;
  if (file.size() < sizeof(header)) return {};
  std::memcpy(&header, file.data(), sizeof(header));
  const std::size_t begin = sizeof(header) + header;
  std::vector<float> numbers((file.size() - begin) / 4);
  std::memcpy(numbers.data(), file.data() + begin, numbers.size() * 4);
  return numbers;
}

double logit_distance(const std::string& a, const std::string& b) {
  const std::vector<float> x = numbers_of(a);
  const std::vector<float> y = numbers_of(b);
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    norm += std::pow(static_cast<double>(y[i]), 2);
  }
  return x.size() == y.size() && norm > 0 ? std::sqrt(difference / norm) : INFINITY;
}

TEST_F(CutlassExperts, give_the_same_bytes_on_any_number_of_ranks) {
  const Run one = run_ranks_of(1, cutlass("all"));
  EXPECT_TRUE(has_line(one.told,
                       "rank 0: 6 of 6 experts a layer on GPU 0 \\(PTX machine, sm_100, cutlass, "))
      << one.told;
  EXPECT_TRUE(run_ranks_of(2, cutlass("all", {"--batch-size", "2"})).logits == one.logits);
  EXPECT_TRUE(run_ranks_of(3, cutlass("all")).logits == one.logits);
  EXPECT_TRUE(run(moesaic_command(cutlass("all")), blackwell("103")).logits == one.logits);
  const std::string cpu = run_ranks_of(1, score_with({"--numerics", "portable"})).logits;
  EXPECT_LT(logit_distance(one.logits, cpu), 0.01);
  const Arguments plain = {"--numerics", "portable", "--nvfp4-activations", "bf16"};
  EXPECT_FALSE(one.logits == run_ranks_of(1, score_with(plain)).logits);
}

TEST_F(CutlassExperts, are_some_of_a_layer_too) {
  const Run one = run_ranks_of(1, cutlass("3"));
  EXPECT_TRUE(has_line(one.told, "3 of 6 experts a layer on GPU 0 .*, 3 on CPU")) << one.told;
  EXPECT_TRUE(run_ranks_of(2, cutlass("3")).logits == one.logits);
}

TEST_F(CutlassExperts, go_through_graphs_with_the_same_bytes) {
  for (const std::string which : {"all", "4"}) {
    const std::string off = run_ranks_of(1, cutlass(which)).logits;
    const Run on = run_ranks_of(1, cutlass(which, {"--gpu-graph", "on"}));
    EXPECT_TRUE(on.logits == off) << which;
    EXPECT_TRUE(has_line(on.told, "each one graph\n")) << on.told;
    EXPECT_TRUE(run_ranks_of(2, cutlass(which, {"--gpu-graph", "on"})).logits == off) << which;
  }
}

TEST_F(CutlassExperts, go_from_gpu_to_gpu_with_the_same_bytes) {
  const std::string folder = models_.path_of("nccl");
  std::filesystem::create_directories(folder);
  Variables variables = blackwell();
  variables["MOESAIC_FAKE_GPUS"] = "2";
  variables["MOESAIC_FAKE_NCCL_FOLDER"] = folder;
  const Arguments by_nccl = cutlass("all", {"--transport", "nccl", "--nccl", MOESAIC_FAKE_NCCL});
  const Run two = run(ranks_command(2, by_nccl), variables);
  EXPECT_TRUE(has_line(two.told, "rows go from GPU to GPU by NCCL")) << two.told;
  EXPECT_TRUE(two.logits == run_ranks_of(1, cutlass("all")).logits);
}

TEST_F(CutlassExperts, take_scales_of_activations_from_the_checkpoint) {
  add_input_scales();
  const Arguments given = {"--activation-scales", "checkpoint"};
  const std::string one = run_ranks_of(1, cutlass("all", given)).logits;
  EXPECT_FALSE(one == run_ranks_of(1, cutlass("all")).logits);
  const std::string cpu =
      run_ranks_of(1, joined(score_with({"--numerics", "portable"}), given)).logits;
  EXPECT_LT(logit_distance(one, cpu), 0.01);
}

TEST_F(CutlassExperts, that_cannot_be_say_why) {
  const auto fails = [&](const Arguments& arguments, const Variables& variables) {
    return run_program(moesaic_command(arguments), variables);
  };
  const Arguments without =
      score_with({"--gpu-experts", "all", "--gpu-kernel", "cutlass", "--cutlass", "/no/such.so"});
  expect_failure(fails(without, blackwell()), 2,
                 {"--gpu-kernel cutlass: /no/such.so: cannot open shared object file",
                  "built with tools/cutlass.sh and cmake -DMOESAIC_CUTLASS=ON, docs/gpu.md"});
  expect_failure(fails(cutlass("all"), blackwell("90")), 2,
                 {"--gpu-kernel cutlass: it is for sm_100 and sm_103, GPU 0 (PTX machine) is "
                  "sm_90"});
  expect_failure(fails(cutlass("none"), blackwell()), 2,
                 {"--gpu-kernel cutlass is for experts on GPUs: --gpu-experts says which"});
  expect_failure(fails(cutlass("all", {"--numerics", "portable"}), blackwell()), 2,
                 {"--gpu-kernel cutlass", "--numerics portable rules out"});
  expect_failure(fails(cutlass("all", {"--nvfp4-activations", "bf16"}), blackwell()), 2,
                 {"--gpu-kernel cutlass", "it wants --nvfp4-activations nvfp4"});
  expect_failure(fails(cutlass("all", {"-m", plain_}), blackwell()), 2,
                 {"--gpu-kernel cutlass: ", "it multiplies matrices in nvfp4 alone, not in bf16"});
  expect_failure(fails(cutlass("all", {"-m", kDemo, "--expert-format", "nvfp4"}), blackwell()), 2,
                 {"--gpu-kernel cutlass: weight \"layers.0.experts.",
                  "it takes sizes that are multiples of 128, not "});
  Variables failing = blackwell();
  failing["MOESAIC_FAKE_CUTLASS_FAILS"] = "as the fake library says";
  expect_failure(fails(cutlass("all"), failing), 4,
                 {"layer 0", "gate_up of cutlass/nvfp4", "as the fake library says"});
}

TEST_F(CutlassExperts, are_counted_before_there_is_a_gpu) {
  const auto rows_of = [&](const Arguments& more) {
    const ProgramResult result =
        run_moesaic(joined({"plan", "-m", model_, "--ranks", "2", "--gpu-experts", "all",
                            "--nvfp4-activations", "nvfp4", "--json"},
                           more));
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return Json::parse(result.out, "plan").at("gpu").at("rows").as_int();
  };
  EXPECT_GT(rows_of({"--gpu-kernel", "cutlass"}), rows_of({}));
  expect_failure(run_moesaic({"plan", "-m", kDemo, "--expert-format", "nvfp4", "--gpu-experts",
                              "all", "--nvfp4-activations", "nvfp4", "--gpu-kernel", "cutlass"}),
                 2, {"it takes sizes that are multiples of 128"});
  const TemporaryDirectory directory;
  write_text(directory.path_of("machine.json"), test_machine().text());
  const ProgramResult untold =
      run_moesaic({"plan", "-m", model_, "--gpu-experts", "all", "--nvfp4-activations", "nvfp4",
                   "--gpu-kernel", "cutlass", "--machine", directory.path_of("machine.json")});
  EXPECT_TRUE(has_line(untold.out, "time +not told for --gpu-kernel cutlass")) << untold.text();
}

TEST(CutlassBench, measures_products) {
  const auto bench = [](const Arguments& more) {
    return run_program(
        moesaic_command(joined(
            {"bench",          "kernels",      "--device", "gpu",         "--shapes",
             "128x256,48x256", "--seconds",    "0",        "--footprint", "40K",
             "--rows",         "1,33",         "-o",       "csv",         "--formats",
             "nvfp4,bf16",     "--gpu-kernel", "cutlass",  "--cutlass",   MOESAIC_FAKE_CUTLASS},
            more)),
        on_fake_gpus({{"MOESAIC_FAKE_CHIP", "100"}}));
  };
  const ProgramResult result = bench({"--nvfp4-activations", "nvfp4"});
  EXPECT_EQ(result.exit_code, 0) << result.text();
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3U) << result.text();
  for (const std::string& line : {lines[1], lines[2]}) {
    EXPECT_TRUE(has_line(line, "\"128x256\",\"nvfp4\",\"sm_100/cutlass\",")) << line;
    EXPECT_TRUE(has_line(line, "\"memory\"")) << line;  // of its products no roof is known
    EXPECT_LT(std::stod(line.substr(line.rfind(',') + 2)), 1e-4) << line;  // error
  }
  EXPECT_TRUE(has_line(result.err,
                       "48x256 in nvfp4 is left out: it takes sizes that are multiples "
                       "of 128, not 48"))
      << result.err;
  EXPECT_TRUE(has_line(result.err,
                       "128x256 in bf16 is left out: it multiplies matrices in nvfp4 "
                       "alone, not in bf16"))
      << result.err;
  expect_failure(bench({}), 2, {"--gpu-kernel cutlass", "it wants --nvfp4-activations nvfp4"});
}

TEST(CutlassDoctor, finds_the_library) {
  const auto doctor = [](const std::string& chip, const Arguments& more) {
    return run_program(moesaic_command(joined({"doctor", "-t", "1"}, more)),
                       on_fake_gpus({{"MOESAIC_FAKE_CHIP", chip}}));
  };
  const ProgramResult found = doctor("100", {"--cutlass", MOESAIC_FAKE_CUTLASS});
  EXPECT_EQ(found.exit_code, 0) << found.text();
  EXPECT_TRUE(has_line(found.out,
                       "GPU kernels by CUTLASS: for sm_100, sm_103, .* \\(.*"
                       "libmoesaic_cutlass.so\\); compiled, never run\n"))
      << found.text();
  EXPECT_TRUE(
      has_line(found.out, "sm_100 \\(bits of sm_90 and later\\), W4A4 by cutlass, of rank 0"))
      << found.text();
  const ProgramResult json = doctor("120", {"--cutlass", MOESAIC_FAKE_CUTLASS, "--json"});
  const Json gpu = Json::parse(json.out, "doctor").at("gpu");
  EXPECT_NE(gpu.at("cutlass").as_string().find("libmoesaic_cutlass.so)"), std::string::npos);
  EXPECT_EQ(gpu.at("devices").at(std::int64_t{0}).at("w4a4").as_string(), "block_scaled");
  const ProgramResult without = doctor("103", {"--cutlass", "/no/such.so", "--json"});
  const Json other = Json::parse(without.out, "doctor").at("gpu");
  EXPECT_EQ(other.at("cutlass").as_string(), "");
  EXPECT_NE(other.at("no_cutlass").as_string().find("/no/such.so: cannot open"), std::string::npos);
  EXPECT_EQ(other.at("devices").at(std::int64_t{0}).at("w4a4").as_string(),
            "cutlass, which is not there");
}

TEST(CutlassBench, measures_layers_that_it_can_multiply) {
  const ProgramResult result = run_program(
      moesaic_command(layer_bench("4,128,128,2", "nvfp4,mxfp4", "2",
                                  {"--gpu-experts", "3", "--nvfp4-activations", "nvfp4",
                                   "--gpu-kernel", "cutlass", "--cutlass", MOESAIC_FAKE_CUTLASS})),
      on_fake_gpus({{"MOESAIC_FAKE_CHIP", "100"}}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_NE(result.err.find("in mxfp4 is left out: --gpu-kernel cutlass: it multiplies matrices in "
                            "nvfp4 alone, not in mxfp4"),
            std::string::npos)
      << result.text();
  EXPECT_EQ(lines_of(result.out).size(), 2U) << result.text();
}

}  // namespace
}  // namespace moesaic::test
