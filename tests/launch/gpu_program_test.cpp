// Experts on GPUs, seen from outside: the driver is one whose GPUs are executed in software
// (tests/gpu/fake_driver.cpp).

#include <gtest/gtest.h>

#include <regex>

#include "base/json.h"
#include "tests/launch/fake_gpus.h"
#include "tests/parallel/test_machine.h"

namespace moesaic::test {
namespace {

using GpuExperts = FakeGpus;

TEST_F(GpuExperts, give_the_bytes_of_the_cpu_for_any_mask_and_rank_count) {
  const std::string cpu = run_score(1, portable("nvfp4", "none")).logits;
  const Run all = run_score(1, portable("nvfp4", "all"));
  EXPECT_TRUE(all.logits == cpu);
  EXPECT_TRUE(has_line(all.told,
                       "rank 0: 16 of 16 experts a layer on GPU 0 \\(PTX machine, sm_90, portable, "
                       "[0-9.]+ [KM]iB\\)\n"))
      << all.told;
  const std::string mask = file("mask.json", R"({"0": [3, 1, 4, 15, 9], "2": [6], "4": [0, 5]})");
  const Run two = run_score(2, portable("nvfp4", mask));
  EXPECT_TRUE(two.logits == cpu);
  EXPECT_TRUE(has_line(two.told,
                       "rank 0: 0 to 3 of 8 experts a layer on GPU 0 .*, the others on "
                       "CPU \\("))
      << two.told;
  for (const int ranks : {3, 4}) {
    EXPECT_TRUE(run_score(ranks, portable("nvfp4", "6")).logits == cpu) << ranks;
  }
}

TEST_F(GpuExperts, are_on_the_cpu_of_a_rank_without_gpu) {
  const std::string cpu = run_score(1, portable("nvfp4", "none")).logits;
  const Arguments one = score(portable("nvfp4", "5"));
  Arguments command = {MOESAIC_MPIRUN, "-n", "1", "-x", "MOESAIC_FAKE_GPUS=0", MOESAIC_PROGRAM};
  command = joined(joined(command, one), {":", "-n", "1", MOESAIC_PROGRAM});
  const Run mixed = run(joined(command, one));
  EXPECT_TRUE(mixed.logits == cpu);
  EXPECT_TRUE(has_line(mixed.told,
                       "rank 0: 8 experts a layer on CPU \\(.*\\): the NVIDIA driver "
                       "shows none\n"))
      << mixed.told;
  EXPECT_TRUE(has_line(mixed.told, "rank 1: 3 of 8 experts a layer on GPU 0 .*, 5 on CPU"))
      << mixed.told;
}

TEST_F(GpuExperts, of_every_format_give_the_bytes_of_the_cpu) {
  const std::string mask = file("mask.json", R"({"1": [2, 7, 8], "3": [11, 12]})");
  for (const std::string format : {"mxfp4", "bf16", "fp8_block32", "int4_group64"}) {
    EXPECT_TRUE(run_score(1, portable(format, mask)).logits ==
                run_score(1, portable(format, "none")).logits)
        << format;
  }
}

TEST_F(GpuExperts, come_from_a_converted_directory_too) {
  const TemporaryDirectory directory;
  const std::string packed = directory.path_of("packed");
  const ProgramResult converted = run_moesaic(convert_to(packed, {"--expert-format", "nvfp4"}));
  ASSERT_EQ(converted.exit_code, 0) << converted.text();
  const auto from_packed = [&](const Arguments& more) {
    return run_score(1, joined({"-m", packed, "--numerics", "portable"}, more)).logits;
  };
  const std::string cpu = from_packed({});
  EXPECT_TRUE(from_packed({"--gpu-experts", "7"}) == cpu);
  EXPECT_TRUE(from_packed({"--gpu-experts", "7", "--mmap", "--verify"}) == cpu);
}

TEST_F(GpuExperts, on_tensor_cores_give_the_same_bytes_on_any_number_of_ranks) {
  const Arguments native = {"--isa", "scalar", "--expert-format", "nvfp4", "--gpu-experts", "2"};
  const Run one = run_score(1, native);
  EXPECT_TRUE(has_line(one.told, "2 of 16 experts a layer on GPU 0 \\(PTX machine, sm_90, mma, "))
      << one.told;
  EXPECT_TRUE(run_score(2, joined(native, {"--batch-size", "2"})).logits == one.logits);
}

TEST_F(GpuExperts, are_summed_there_where_they_are_all_that_a_batch_chose) {
  const auto bytes_down = [&](const Arguments& more) {
    const TemporaryDirectory directory;
    const std::string counts = directory.path_of("counts");
    const Run result =
        run(moesaic_command(score(more)), on_fake_gpus({{"MOESAIC_FAKE_COUNTS", counts}}));
    EXPECT_TRUE(result.logits == run_score(1, portable("nvfp4", "none")).logits);
    return std::stoll(read_text(counts));
  };
  constexpr int kTopk = 4;
  constexpr int kLayers = 5;
  const Arguments all = portable("nvfp4", "all");
  const long long sums = bytes_down(all);
  EXPECT_GT(sums, 0);
  EXPECT_EQ(bytes_down(joined(all, {"--gpu-graph", "on"})), sums);
  // Two batches under way go through the host: a result for each choice comes down.
  EXPECT_EQ(bytes_down(joined(all, {"--half-batches", "on"})), kTopk * sums);
  std::string ids = "0";
  for (int id = 1; id < 16; ++id) ids += ", " + std::to_string(id);
  const std::string mask = file("layer.json", R"({"2": [)" + ids + "]}");
  EXPECT_EQ(kLayers * bytes_down(portable("nvfp4", mask)), sums);
}

TEST_F(GpuExperts, are_measured_with_a_model) {
  const auto bench = [&](const Arguments& more) {
    return run_program(moesaic_command(joined({"bench", "model", "-m", kDemo, "-p", "3", "-n", "2",
                                               "-r", "1", "--gpu-experts", "all"},
                                              more)),
                       on_fake_gpus());
  };
  for (const Arguments& more : {Arguments{}, {"--gpu-graph", "on"}, {"-t", "1,2"}}) {
    const ProgramResult result = bench(more);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    EXPECT_TRUE(has_line(result.out, ", GPU .* pp3 ")) << result.text();
    EXPECT_TRUE(has_line(result.out, ", GPU .* tg2 ")) << result.text();
  }
  EXPECT_NE(bench({"-o", "jsonl"}).out.find(R"("backends": "CPU,GPU")"), std::string::npos);
  expect_failure(bench({"-t", "1,2", "--gpu-kernel", "cutlass", "--nvfp4-activations", "nvfp4"}), 2,
                 {"bench model takes one number of threads with --gpu-kernel cutlass"});
}

TEST_F(GpuExperts, take_activations_in_nvfp4) {
  const Arguments rounded = {"--nvfp4-activations", "nvfp4"};
  const std::string cpu = run_score(1, joined(portable("nvfp4", "none"), rounded)).logits;
  EXPECT_FALSE(run_score(1, portable("nvfp4", "none")).logits == cpu);
  EXPECT_TRUE(run_score(1, joined(portable("nvfp4", "all"), rounded)).logits == cpu);
  EXPECT_TRUE(run_score(2, joined(portable("nvfp4", "5"), rounded)).logits == cpu);
}

TEST_F(GpuExperts, multiply_activations_in_nvfp4_as_they_are) {
  const Variables blackwell = on_fake_gpus({{"MOESAIC_FAKE_CHIP", "120"}});
  const Arguments native = {"--isa",         "scalar", "--expert-format",     "nvfp4",
                            "--gpu-experts", "all",    "--nvfp4-activations", "nvfp4"};
  const Run one = run(moesaic_command(score(native)), blackwell);
  EXPECT_TRUE(has_line(one.told,
                       "16 of 16 experts a layer on GPU 0 \\(PTX machine, sm_120, block_scaled, "))
      << one.told;
  const Run two = run(ranks_command(2, score(joined(native, {"--batch-size", "2"}))), blackwell);
  EXPECT_TRUE(two.logits == one.logits);
}

/// Of the smallest memory that has room for so many experts a layer.
TEST_F(GpuExperts, that_do_not_fit_are_counted_before_anything_is_loaded) {
  const Variables small = on_fake_gpus({{"MOESAIC_FAKE_BYTES", "1000000"}});
  const auto command = [&](const std::string& which) {
    return moesaic_command(score(joined(portable("nvfp4", which), {"--batch-size", "8"})));
  };
  const ProgramResult refused = run_program(command("all"), small);
  expect_failure(
      refused, 4,
      {"not enough memory on GPU 0 (PTX machine, sm_90, portable): --gpu-experts all takes ",
       "most of it for experts", " are available (--gpu-memory 90)", "; at most --gpu-experts "});
  std::smatch found;
  ASSERT_TRUE(std::regex_search(refused.err, found, std::regex("at most --gpu-experts ([0-9]+)")));
  const int fitting = std::stoi(found[1]);
  EXPECT_GT(fitting, 0);
  EXPECT_LT(fitting, 16);
  expect_failure(run_program(command(std::to_string(fitting + 1)), small), 4,
                 {"not enough memory"});
  const Run filled = run(command("auto"), small);
  EXPECT_TRUE(has_line(filled.told,
                       "rank 0: " + std::to_string(fitting) + " of 16 experts a layer on GPU 0"))
      << filled.told;
  EXPECT_TRUE(filled.logits == run_score(1, portable("nvfp4", "none")).logits);
}

TEST_F(GpuExperts, that_cannot_be_say_why) {
  const auto fails = [&](const Arguments& more, const Variables& variables = on_fake_gpus()) {
    return run_program(moesaic_command(score(more)), variables);
  };
  const Variables without = on_fake_gpus({{"MOESAIC_FAKE_GPUS", "0"}});
  expect_failure(fails({"--gpu-experts", "all"}, without), 4,
                 {"--gpu-experts all: there is no GPU: the NVIDIA driver shows none"});
  const Variables old = on_fake_gpus({{"MOESAIC_FAKE_VERSION", "12080"}});
  expect_failure(fails({"--gpu-experts", "all"}, old), 4,
                 {"there is no GPU: the NVIDIA driver is too old: it has CUDA 12.8"});
  const Variables turing = on_fake_gpus({{"MOESAIC_FAKE_CHIP", "75"}});
  expect_failure(fails(portable("nvfp4", "1"), turing), 4, {"sm_75", "sm_80 and later"});
  expect_failure(fails({"--expert-format", "int8", "--gpu-experts", "1"}), 2,
                 {"weight \"layers.0.experts.15.gate\"", "GPUs have no kernels for int8"});
  expect_failure(fails({"--precision", "fp32", "--gpu-experts", "1"}), 2,
                 {"GPUs have no kernels for f32"});
  expect_failure(fails({"--gpu-experts", "17"}), 2, {"17", "has 16 experts"});
  expect_failure(fails({"--expert-load", "load.json"}), 2,
                 {"--expert-load is for --gpu-experts auto"});
  expect_failure(fails({"--gpu-experts", file("layer.json", R"({"5": [0]})")}), 3,
                 {"layer.json", "no layer \"5\": the model has layers 0 to 4"});
  expect_failure(fails({"--gpu-experts", file("twice.json", R"({"1": [2, 2]})")}), 3,
                 {"twice.json", "expert 2 of layer 1 stands twice"});
  expect_failure(fails({"--gpu-experts", "no.json"}), 3, {"no.json"});
  expect_failure(
      fails({"--gpu-experts", "1", "--nvfp4-activations", "nvfp4", "--expert-format", "nvfp4"}), 2,
      {"--nvfp4-activations nvfp4: GPU 0 (PTX machine, sm_90) does not multiply "
       "activations in nvfp4, sm_120 and sm_121 do; with --numerics portable"});
  expect_failure(run_moesaic({"sft", "-m", kDemo, "--gpu-experts", "all"}), 2, {"--gpu-experts"});
}

/// moesaic plan of the demo model.
Json planned(const Arguments& more) {
  const ProgramResult result = run_moesaic(joined(
      {"plan", "--json", "-m", kDemo, "-t", "1", "--expert-format", "bf16", "--routing", "even"},
      more));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  return Json::parse(result.out, "plan");
}

/// Of a term of its pass over prompts: "seconds" or "quantity"; 0 if there is no such term.
double of_term(const Json& plan, std::string_view name, std::string_view what) {
  double found = 0;
  plan.at("time").at("terms").at("prompt").for_each([&](const std::string&, const Json& term) {
    if (term.at("name").as_string() == name) found = term.at(what).as_double();
  });
  return found;
}

TEST_F(GpuExperts, have_a_time_in_plans_where_gpus_were_measured) {
  const std::string machine = file("machine.json", "");
  const ProgramResult measured =
      run_program(moesaic_command({"doctor", "--measure", machine, "--seconds", "0", "-t", "1",
                                   "--footprint", "32M"}),
                  on_fake_gpus());
  ASSERT_EQ(measured.exit_code, 0) << measured.text();
  const GpuRates gpu = read_machine_rates(machine).gpu.value();
  EXPECT_EQ(gpu.name, "PTX machine, sm_90");
  EXPECT_EQ(gpu.flops_per_second.size(), 2U) << "of portable and mma";
  const Json all = planned({"--machine", machine, "--gpu-experts", "all"});
  EXPECT_GT(all.at("time").at("prompt_tokens_per_second").as_double(), 0);
  EXPECT_GT(of_term(all, "gpu.products", "seconds") + of_term(all, "gpu.reads", "seconds"), 0);
}

TEST_F(GpuExperts, are_terms_of_plans) {
  const std::string machine = file("machine.json", test_machine().text());
  const Json all = planned({"--machine", machine, "--gpu-experts", "all"});
  for (const char* name : {"gpu.calls", "gpu.waits", "gpu.up", "gpu.down"}) {
    EXPECT_GT(of_term(all, name, "seconds"), 0) << name;
  }
  EXPECT_EQ(of_term(all, "experts.bf16", "quantity"), 0);
  EXPECT_EQ(of_term(planned({"--machine", machine}), "gpu.calls", "quantity"), 0);
  const Json some = planned({"--machine", machine, "--gpu-experts", "8"});
  EXPECT_GT(of_term(some, "experts.bf16", "quantity"), 0);
  EXPECT_GT(of_term(some, "gpu.calls", "quantity"), 0);
  // Results come down then, not sums: of the four experts of each token.
  const Json rounded = planned({"--machine", machine, "--gpu-experts", "all", "--wire", "int8"});
  EXPECT_NEAR(of_term(rounded, "gpu.down", "quantity") / of_term(all, "gpu.down", "quantity"), 4,
              1e-3);
}

TEST_F(GpuExperts, have_no_time_in_plans_where_they_were_not_measured) {
  MachineRates rates = test_machine();
  const std::string machine = file("machine.json", rates.text());
  const Arguments plan = {"plan", "-m", kDemo, "--machine", machine, "--gpu-experts", "all"};
  const Arguments rounded = {"--expert-format", "nvfp4", "--nvfp4-activations", "nvfp4"};
  const ProgramResult other = run_moesaic(joined(plan, rounded));
  EXPECT_EQ(other.exit_code, 0) << other.text();
  EXPECT_TRUE(has_line(other.out,
                       "time +not told: .*machine.json: kernels of block_scaled were not measured "
                       "on a GPU \\(a GPU, sm_90\\)"))
      << other.text();
  rates.gpu.reset();
  write_text(machine, rates.text());
  const ProgramResult untold = run_moesaic(plan);
  EXPECT_EQ(untold.exit_code, 0) << untold.text();
  EXPECT_TRUE(has_line(untold.out,
                       "time +not told for experts on GPUs: .*machine.json was measured without a "
                       "GPU"))
      << untold.out;
}

TEST(GpuTexts, do_not_go_on_with_other_experts_on_gpus) {
  const TemporaryDirectory directory;
  const Arguments generate = generate_with({"--out", directory.path_of("texts.jsonl"), "-n", "1"});
  EXPECT_EQ(run_moesaic(generate).exit_code, 0);
  expect_failure(
      run_program(moesaic_command(joined(generate, {"--gpu-experts", "1"})), on_fake_gpus()), 2,
      {"texts.jsonl", "was written with --gpu-experts none, not 1"});
}

TEST(GpuDoctor, tells_what_there_is_and_tests_every_kernel) {
  const ProgramResult result =
      run_program(ranks_command(2, {"doctor", "-t", "1", "--nccl", MOESAIC_FAKE_NCCL, "--cutlass",
                                    "/no/libmoesaic_cutlass.so"}),
                  on_fake_gpus({{"MOESAIC_FAKE_GPUS", "1"}}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  for (const std::string text :
       {"GPU kernels: for sm_80, .*sm_90, .*sm_120, .*by CUDA 13.",
        "run on an H200 in an earlier form, for other chips executed in software",
        "GPUs: driver ([0-9.]+ )?for CUDA 13.0; NCCL 2.28.9 \\(.*fake_nccl/libnccl.so.*\\)\n",
        "GPU kernels by CUTLASS: none: .*libmoesaic_cutlass.so: cannot open .*; tools/cutlass.sh "
        "and "
        "cmake -DMOESAIC_CUTLASS=ON build them",
        "GPU 0: PTX machine, GPU-00000000-0000-0000-0000-000000000000",
        "sm_90 \\(bits of sm_90 and later\\), no W4A4 on tensor cores, shared by ranks 0, 1\n",
        "GPU 0: reads its memory with [0-9.e+]+ GB/s, copies ",
        "kernel gpu/portable/int4_group +same bits as scalar\n",
        "kernel gpu/portable/nvfp4 \\(W4A4\\) +same bits as scalar\n",
        "kernel gpu/mma/nvfp4 +relative error against scalar"}) {
    EXPECT_TRUE(has_line(result.out, text)) << text << "\n" << result.text();
  }
  const ProgramResult without = run_program(moesaic_command({"doctor", "--json"}),
                                            on_fake_gpus({{"MOESAIC_FAKE_GPUS", "0"}}));
  EXPECT_EQ(without.exit_code, 0) << without.text();
  EXPECT_EQ(Json::parse(without.out, "doctor").at("gpu").at("absent").as_string(),
            "the NVIDIA driver shows none");
}

/// What moesaic plan tells of the demo model in nvfp4 on two ranks.
ProgramResult plan_with(const Arguments& more) {
  return run_moesaic(
      joined({"plan", "-m", kDemo, "--ranks", "2", "--expert-format", "nvfp4", "--json"}, more));
}

TEST(GpuPlan, counts_what_gpus_hold_and_hosts_do_not) {
  const auto plan = [](const Arguments& more) {
    const ProgramResult result = plan_with(more);
    EXPECT_EQ(result.exit_code, 0) << result.text();
    return Json::parse(result.out, "plan");
  };
  const Json cpu = plan({});
  EXPECT_FALSE(cpu.contains("gpu"));
  const std::int64_t experts = cpu.at("items").at("expert").as_int();  // of both ranks
  const Json all = plan({"--gpu-experts", "all", "--gpu-memory", "1G"});
  EXPECT_EQ(all.at("items").at("expert").as_int(), 0);
  EXPECT_EQ(all.at("gpu").at("expert").as_int(), experts / 2);
  EXPECT_EQ(all.at("gpu").at("bytes").as_int(), experts / 2 + all.at("gpu").at("rows").as_int());
  EXPECT_EQ(all.at("gpu").at("limit_bytes").as_int(), 1 << 30);
  const Json some = plan({"--gpu-experts", "4"});
  EXPECT_EQ(some.at("gpu").at("expert").as_int(), experts / 2 / 4);
  EXPECT_EQ(some.at("items").at("expert").as_int(), experts / 4 * 3);
  EXPECT_GT(plan({"--gpu-experts", "all", "--transport", "nccl"}).at("gpu").at("rows").as_int(),
            all.at("gpu").at("rows").as_int());
  const std::int64_t rows = all.at("gpu").at("rows").as_int();
  const Json filled =
      plan({"--gpu-experts", "auto", "--gpu-memory", std::to_string(rows + experts / 4)});
  EXPECT_EQ(filled.at("gpu").at("expert").as_int(), experts / 4);
}

TEST(GpuPlan, refuses_what_a_gpu_has_no_room_for) {
  expect_failure(plan_with({"--gpu-experts", "all", "--gpu-memory", "300K", "--batch-size", "8"}),
                 4,
                 {"not enough memory on a GPU: --gpu-experts all takes ", "(experts ", ", rows ",
                  "most of it for experts, but 300.0 KiB are available (--gpu-memory); at most "
                  "--gpu-experts "});
  expect_failure(plan_with({"--gpu-experts", "auto"}), 2, {"--gpu-memory says how much"});
  expect_failure(plan_with({"--gpu-experts", "all", "--job", "sft"}), 2,
                 {"--gpu-experts is no option of moesaic sft"});
}

TEST(GpuInspect, tells_what_experts_take_of_gpus) {
  const ProgramResult result = run_moesaic({"inspect", kDemo, "--json"});
  const Json json = Json::parse(result.out, "inspect");
  EXPECT_EQ(json.at("gpu_expert_bytes").as_int(),
            json.at("packed_expert_bytes").at("bf16").as_int());
}

TEST_F(GpuExperts, name_the_kernels_and_the_layer_of_an_error) {
  const auto fails = [&](const std::string& variable, const std::string& value) {
    return run_program(moesaic_command(score(joined(portable("nvfp4", "all"), {"--timeout", "1"}))),
                       on_fake_gpus({{variable, value}}));
  };
  expect_failure(fails("MOESAIC_FAKE_FAILS", "1"), 4,
                 {"rank 0", "layer 0", "kernels gate_up of portable/nvfp4, down of portable/nvfp4",
                  "GPU 0 (PTX machine)", "CUDA_ERROR_LAUNCH_FAILED", "read outside of memory"});
  expect_failure(fails("MOESAIC_FAKE_HANGS", "2"), 5,
                 {"layer 0", "has not finished kernels gate_up of portable/nvfp4", "within 1 s"});
  expect_failure(fails("MOESAIC_FAKE_HANGS", "1"), 5, {"has not finished a copy within 1 s"});
}

}  // namespace
}  // namespace moesaic::test
