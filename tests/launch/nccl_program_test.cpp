// Rows that go from GPU to GPU, seen from outside: the driver and NCCL are those of tests/gpu.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/fake_gpus.h"

namespace moesaic::test {
namespace {

class Nccl : public FakeGpus {
 protected:
  /// With a GPU for each of up to three ranks.
  [[nodiscard]] Variables over_nccl(const Variables& more = {}) const {
    Variables variables = on_fake_gpus(more);
    variables.insert({{"MOESAIC_FAKE_GPUS", "3"},
                      {"MOESAIC_FAKE_NCCL_FOLDER", directory_.path()},
                      {"MOESAIC_NCCL", MOESAIC_FAKE_NCCL}});
    return variables;
  }
  [[nodiscard]] Run run_over_nccl(int ranks, const Arguments& more,
                                  const Variables& variables = {}) {
    return run(ranks_command(ranks, score(joined({"--transport", "nccl"}, more))),
               over_nccl(variables));
  }
  [[nodiscard]] bool has_aborted(int rank) const {
    return std::filesystem::exists(directory_.path_of("aborted." + std::to_string(rank)));
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(Nccl, gives_the_bytes_of_the_cpu) {
  const std::string cpu = run_score(1, portable("nvfp4", "none")).logits;
  for (const int ranks : {2, 3}) {
    const Run result = run_over_nccl(ranks, portable("nvfp4", "all"));
    EXPECT_TRUE(result.logits == cpu) << ranks;
    EXPECT_TRUE(has_line(result.told, "rows go from GPU to GPU by NCCL 2.28.9 \\(.*/libnccl.so"))
        << result.told;
    EXPECT_FALSE(has_line(result.told, "would wait for other ranks")) << result.told;
  }
  const Run graphs = run_over_nccl(2, joined(portable("nvfp4", "all"), {"--gpu-graph", "on"}));
  EXPECT_TRUE(graphs.logits == cpu);
  EXPECT_TRUE(has_line(graphs.told, "rows go from GPU to GPU by NCCL")) << graphs.told;
  EXPECT_TRUE(has_line(graphs.told, "up to 256 rows are planned on GPUs, each one graph"))
      << graphs.told;
  EXPECT_FALSE(has_line(graphs.told, "would wait for other ranks")) << graphs.told;
  const Run alone = run_over_nccl(1, portable("nvfp4", "all"));
  EXPECT_TRUE(alone.logits == cpu);
  EXPECT_TRUE(has_line(alone.told, "each rank has all experts: no rows travel")) << alone.told;
}

TEST_F(Nccl, takes_gpus_that_each_rank_sees_alone) {
  const std::string cpu = run_score(1, portable("nvfp4", "none")).logits;
  const Run own = run_over_nccl(2, portable("nvfp4", "all"),
                                {{"MOESAIC_FAKE_GPUS", "1"}, {"MOESAIC_FAKE_OWN", "1"}});
  EXPECT_TRUE(own.logits == cpu);
  EXPECT_TRUE(has_line(own.told, "rows go from GPU to GPU by NCCL")) << own.told;
  EXPECT_FALSE(has_line(own.told, "shared by")) << own.told;
}

TEST_F(Nccl, says_why_rows_go_through_hosts) {
  const std::string cpu = run_score(1, portable("nvfp4", "none")).logits;
  const auto check = [&](const std::string& why, const Arguments& more,
                         const Variables& variables = {}, bool is_exact = true) {
    const Run result = run_over_nccl(2, more, variables);
    EXPECT_TRUE(
        has_line(result.told, "--transport nccl: rows go through the memory of hosts: " + why))
        << why << "\n"
        << result.told;
    EXPECT_EQ(result.logits == cpu, is_exact) << why;
  };
  const Arguments all = portable("nvfp4", "all");
  check("no experts are on GPUs", portable("nvfp4", "none"));
  check("rank 0: it has experts on the CPU", portable("nvfp4", "5"));
  check("rank 0: it shares GPU 0 with 1 more", all, {{"MOESAIC_FAKE_GPUS", "1"}});
  check("rank 0: no NCCL: /no/nccl.so", joined(all, {"--nccl", "/no/nccl.so"}));
  check("rank 0: NCCL 2.10.3 \\(.*\\) is too old", all, {{"MOESAIC_FAKE_NCCL_VERSION", "21003"}});
  check("rank 0: --half-batches on", joined(all, {"--half-batches", "on"}));
  check("rank 0: --wire int8 rounds them", joined(all, {"--wire", "int8"}), {}, false);
  check("rank 0: --combine fast adds results", joined(all, {"--combine", "fast"}), {}, false);
  expect_failure(run_moesaic({"bench", "exchange", "--transport", "nccl"}), 2,
                 {"--transport nccl is for experts on GPUs, which bench exchange does not have"});
}

TEST_F(Nccl, that_fails_ends_the_job) {
  const Arguments more = joined({"--transport", "nccl"}, portable("nvfp4", "all"));
  const ProgramResult result =
      run_program(ranks_command(2, score(more)), over_nccl({{"MOESAIC_FAKE_NCCL_FAILS", "1"}}));
  expect_failure(result, 5,
                 {"layer 0", "rank 1 of 2: NCCL 2.28.9: rows from GPU to GPU: remote process"});
  EXPECT_TRUE(has_aborted(1));
  EXPECT_FALSE(has_line(result.err, "would wait for other ranks")) << result.err;
}

TEST_F(Nccl, whose_peer_falls_silent_ends_the_job) {
  const auto fails = [&](const char* who) {
    return run_program(ranks_command(2, score(joined({"--transport", "nccl", "--timeout", "3"},
                                                     portable("nvfp4", "all")))),
                       over_nccl({{who, "1"}}));
  };
  const ProgramResult silent = fails("MOESAIC_FAKE_NCCL_SILENT");
  expect_failure(silent, 5, {"layer 0", "has not finished ", "within 3 s"});
  EXPECT_TRUE(has_aborted(0));
  EXPECT_FALSE(has_line(silent.err, "would wait for other ranks")) << silent.err;
  const ProgramResult absent = fails("MOESAIC_FAKE_NCCL_ABSENT");
  expect_failure(absent, 5, {"has not ended within 3 s: is a rank missing?"});
}

TEST(NcclBench, measures_a_layer_whose_rows_go_from_gpu_to_gpu) {
  const TemporaryDirectory directory;
  const ProgramResult result = run_program(
      ranks_command(2, layer_bench("4,32,32,2", "nvfp4", "2",
                                   {"--gpu-experts", "all", "--nccl", MOESAIC_FAKE_NCCL,
                                    "--transport", "nccl"})),
      on_fake_gpus({{"MOESAIC_FAKE_GPUS", "2"}, {"MOESAIC_FAKE_NCCL_FOLDER", directory.path()}}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_TRUE(has_line(result.err, "rows go from GPU to GPU by NCCL")) << result.text();
}

}  // namespace
}  // namespace moesaic::test
