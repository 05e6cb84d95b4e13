// The parts of the program that need neither ranks nor a model.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/progress.h"
#include "comm/thread_communicator.h"
#include "launch/input/prompts.h"
#include "launch/job/agreement.h"
#include "launch/job/lost_hosts.h"
#include "launch/job/memory_check.h"
#include "launch/job/model_facts.h"
#include "launch/job/rank_info.h"
#include "launch/sft/disk_demand.h"
#include "launch/verbs/self_test.h"
#include "src/model/gqa_kind.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;

RankInfo rank_info(std::string_view cpus, int cores, int machine_cores, int node = 0) {
  RankInfo info;
  set_cpuset(info, cpus);
  info.cores = cores;
  info.machine_cores = machine_cores;
  info.node = node;
  return info;
}

TEST(RankInfo, OverlapOfCpuLists) {
  EXPECT_TRUE(cpusets_overlap("0-3,8", "8-9"));
  EXPECT_TRUE(cpusets_overlap("2", "0-3"));
  EXPECT_FALSE(cpusets_overlap("0-3,8", "4-7,9"));
  EXPECT_FALSE(cpusets_overlap("", "0"));
}

TEST(RankInfo, RanksThatShareCoresShareThemFairly) {
  const std::vector<RankInfo> together(3, rank_info("0-7", 8, 8));
  EXPECT_EQ(share_cores(together), (std::vector<int>{2, 2, 2}));
  const std::vector<RankInfo> apart = {rank_info("0-3", 4, 8), rank_info("4-7", 4, 8)};
  EXPECT_EQ(share_cores(apart), (std::vector<int>{4, 4}));
  const std::vector<RankInfo> crowded(4, rank_info("0-1", 2, 2));
  EXPECT_EQ(share_cores(crowded), (std::vector<int>{1, 1, 1, 1}));
}

using Variables = std::map<std::string, const char*>;

Launcher launcher_of(const Variables& variables) {
  return Launcher([variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  });
}
const Launcher kMpirun = launcher_of({{"OMPI_COMM_WORLD_SIZE", "2"}});
const Launcher kSrun = launcher_of({{"SLURM_PROCID", "0"}});
const Launcher kNone = launcher_of({});

TEST(Launcher, is_known_by_its_variables) {
  const Launcher alone = kNone;
  EXPECT_FALSE(alone.is_mpirun() || alone.is_srun() || alone.is_process_manager());
  EXPECT_EQ(alone.started().processes, 1);
  EXPECT_FALSE(alone.is_later_process());

  const Launcher mpirun = launcher_of(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}});
  EXPECT_TRUE(mpirun.is_mpirun());
  EXPECT_FALSE(mpirun.is_process_manager());
  EXPECT_EQ(mpirun.started().processes, 4);
  EXPECT_EQ(std::string(mpirun.started().variable), "OMPI_COMM_WORLD_SIZE");
  EXPECT_FALSE(mpirun.is_later_process());

  const Launcher srun =
      launcher_of({{"SLURM_PROCID", "2"}, {"PMIX_RANK", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}});
  EXPECT_TRUE(srun.is_srun() && srun.is_process_manager());
  EXPECT_EQ(std::string(srun.started().variable), "SLURM_STEP_NUM_TASKS");
  EXPECT_TRUE(srun.is_later_process());
}

TEST(RankInfo, WarnsOnceForAGroupOfRanksThatCrowdTheirCores) {
  const auto warning = [](std::size_t ranks, const RankInfo& each, const auto& launcher) {
    const auto warnings = launch_warnings(std::vector<RankInfo>(ranks, each), launcher);
    EXPECT_EQ(warnings.size(), 1U);
    return warnings.front().substr(warnings.front().find(": ") + 2);
  };
  EXPECT_EQ(warning(4, rank_info("0-1", 2, 2), kMpirun),
            "4 ranks with 4 threads share 2 cores (cpus 0-1); at most 2 ranks here have a core "
            "each");
  EXPECT_EQ(warning(4, rank_info("0-1", 2, 8), kMpirun),
            "4 ranks with 4 threads share 2 cores (cpus 0-1); try mpirun --bind-to none");
  RankInfo each = rank_info("0-1", 2, 8);
  each.threads = 3;
  EXPECT_EQ(warning(2, each, kSrun),
            "2 ranks with 6 threads share 2 cores (cpus 0-1); try srun --cpus-per-task=3");
  EXPECT_EQ(warning(1, each, kNone),
            "1 rank with 3 threads share 2 cores (cpus 0-1); try --threads 2");
}

TEST(RankInfo, WarnsOfARankBoundToOneCore) {
  const std::vector<RankInfo> bound = {rank_info("0", 1, 8)};
  const auto warning = [&](const auto& launcher) {
    const std::vector<std::string> warnings = launch_warnings(bound, launcher);
    EXPECT_EQ(warnings.size(), 1U);
    return warnings.front().substr(warnings.front().find("bound"));
  };
  EXPECT_EQ(warning(kMpirun), "bound to 1 of 8 cores (cpu 0); try mpirun --bind-to none");
  EXPECT_EQ(warning(kSrun), "bound to 1 of 8 cores (cpu 0); try srun --cpus-per-task=8");
  EXPECT_EQ(warning(kNone), "bound to 1 of 8 cores (cpu 0)");
  EXPECT_TRUE(launch_warnings(std::vector<RankInfo>{rank_info("0-7", 8, 8)}, kMpirun).empty());
}

TEST(RankInfo, WarnsOfAnMpirunThatWouldWaitForALostHost) {
  std::vector<RankInfo> ranks = {rank_info("0-3", 4, 8), rank_info("0-3", 4, 8)};
  Variables variables = {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_MCA_oob_tcp_keepalive_time", "3"}};
  const auto warning = [&] {
    return lost_host_warning(ranks, [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second;
    });
  };
  EXPECT_EQ(warning(), "");
  ranks[1].host[0] = 'x';
  EXPECT_EQ(warning(),
            "mpirun waits for ever for a host that it cannot reach any more: set "
            "OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3");
  variables.erase("OMPI_COMM_WORLD_SIZE");  // another launcher
  EXPECT_EQ(warning(), "");
}

TEST(RankInfo, WarnsOfARefusedAmxOnceANode) {
  std::vector<RankInfo> ranks = {rank_info("0-3", 4, 8), rank_info("4-7", 4, 8)};
  for (RankInfo& rank : ranks) std::ranges::copy(std::string_view("no"), rank.amx_refusal.begin());
  const std::vector<std::string> warnings = launch_warnings(ranks, kMpirun);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("has AMX, but the system refuses it (no)"), std::string::npos);
}

RankInfo with_isas(std::initializer_list<Isa> isas, bool prefers) {
  RankInfo info;
  info.isas = 0;
  for (const Isa isa : isas) info.isas |= 1U << static_cast<unsigned>(isa);
  info.prefers_avx512_bf16 = prefers;
  return info;
}

TEST(ChooseIsa, TakesTheBestThatAllRanksHave) {
  const RankInfo old = with_isas({Isa::scalar, Isa::avx2}, false);
  const RankInfo intel = with_isas({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}, false);
  const RankInfo amd = with_isas({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}, true);
  const auto choose = [](std::vector<RankInfo> ranks, std::optional<Isa> wanted, bool portable) {
    return choose_isa(ranks, wanted, portable);
  };
  EXPECT_EQ(choose({amd, amd}, {}, false), Isa::avx512_bf16);
  EXPECT_EQ(choose({amd, amd}, {}, true), Isa::avx512);
  EXPECT_EQ(choose({amd, intel}, {}, false), Isa::avx512);
  EXPECT_EQ(choose({amd, old}, {}, false), Isa::avx2);
  EXPECT_EQ(choose({intel, amd}, Isa::avx512_bf16, false), Isa::avx512_bf16);
  EXPECT_EQ(choose({amd}, Isa::scalar, false), Isa::scalar);
  EXPECT_NE(error_message(
                [&] {
                  static_cast<void>(choose({amd, old}, Isa::avx512, false));
                },
                ErrorKind::usage)
                .find("rank 1"),
            std::string::npos);
  EXPECT_NE(error_message([&] { static_cast<void>(choose({amd}, Isa::avx512_bf16, true)); },
                          ErrorKind::usage)
                .find("portable"),
            std::string::npos);
}

TEST(Agreement, TheLowestFailingRankSpeaks) {
  run_thread_ranks(4, [](Communicator& comm) {
    try {
      agree(comm, [&] {
        if (comm.rank() >= 2) fail(ErrorKind::file, "rank {} cannot read", comm.rank());
      });
      ADD_FAILURE() << "no error on rank " << comm.rank();
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.speaks(), comm.rank() == 2);
      EXPECT_EQ(error.kind(), ErrorKind::file);
      if (error.speaks()) {
        EXPECT_STREQ(error.what(), "rank 2 cannot read");
      }
    }
    agree(comm, [] {});
  });
}

TEST(Agreement, DifferentThingsAreFound) {
  run_thread_ranks(3, [](Communicator& comm) {
    std::vector<Shared> shared = {{"a model", 7}, {"seeds", 8}, {"texts", 9}};
    require_same(comm, shared);
    if (comm.rank() == 2) shared[1].fingerprint = 9;
    try {
      require_same(comm, shared);
      ADD_FAILURE() << "no error on rank " << comm.rank();
    } catch (const AgreedError& error) {
      EXPECT_STREQ(error.what(), "seeds differ between rank 0 and rank 2; all ranks need the same");
      EXPECT_EQ(error.speaks(), comm.rank() == 0);
    }
  });
}

TEST(OptionValues, LengthsOfTimeAreAdded) {
  const auto time = [](std::string_view text) {
    return parse_time_span(text, "here").milliseconds;
  };
  EXPECT_EQ(time("90"), 90'000);
  EXPECT_EQ(time("0.25s"), 250);
  EXPECT_EQ(time("50m"), 50 * 60'000);
  EXPECT_EQ(time("1h30m"), 90 * 60'000);
  EXPECT_EQ(time("1d1h1m1"), 90'061'000);
  for (const char* bad : {"", "h", "5x", "-3s", "1h-1m", "nan", "inf", "1e300d", "3 m"}) {
    EXPECT_THROW(static_cast<void>(time(bad)), Error) << bad;
  }
}

TEST(Memory, ParsesBytes) {
  const auto bytes = [](std::string_view text) { return parse_bytes(text, "here").bytes; };
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("2K"), 2048);
  EXPECT_EQ(bytes("1.5GiB"), std::int64_t{3} << 29);
  EXPECT_EQ(bytes("12 GB"), std::int64_t{12} << 30);
  for (const char* bad : {"", "G", "-1", "12X", "12GG", "1e30"}) {
    const std::string message = error_message([&] { (void)bytes(bad); }, ErrorKind::usage);
    EXPECT_TRUE(message.starts_with("here: ")) << bad << ": " << message;
  }
}

TEST(Memory, ShortageSaysWhatIsNeededAndWhatHelps) {
  MemoryPlan plan{.num_ranks = 2};
  plan.items[MemoryItem::expert] = 6 << 20;
  plan.items[MemoryItem::dense] = 1 << 20;
  plan.items[MemoryItem::cache] = 5 << 20;
  plan.items[MemoryItem::activation] = 1 << 10;
  require_memory(plan, {13 << 20, "test"}, Verb::generate);
  const std::string message = error_message(
      [&] {
        require_memory(plan, {8 << 20, "memory.max"}, Verb::generate);
      },
      ErrorKind::resource);
  for (const char* part : {"12.0 MiB", "most of it for experts", "8.00 MiB", "memory.max",
                           "--parallel", "key-value cache 5.00 MiB"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  for (const char* part : {"--batch-size", "--recompute", "adapters", "exchange"}) {
    EXPECT_EQ(message.find(part), std::string::npos) << message;
  }
  plan.items[MemoryItem::optimizer] = 8 << 20;
  plan.items[MemoryItem::activation] = 8 << 20;
  const std::string training = error_message(
      [&] {
        require_memory(plan, {8 << 20, "test"}, Verb::sft);
      },
      ErrorKind::resource);
  for (const char* part : {"optimizer 8.00 MiB", "--batch-size", "--lora-rank"}) {
    EXPECT_NE(training.find(part), std::string::npos) << training;
  }
  EXPECT_EQ(training.find("--recompute"), std::string::npos) << "no layer is kept: " << training;
  plan.keeps_layers = true;
  const std::string keeping = error_message(
      [&] {
        require_memory(plan, {8 << 20, "test"}, Verb::sft);
      },
      ErrorKind::resource);
  EXPECT_NE(keeping.find("--recompute always"), std::string::npos) << keeping;
}

TEST(Memory, ShortageAdvisesOptionsOfTheVerbAlone) {
  MemoryPlan plan{.num_ranks = 1};
  plan.items[MemoryItem::cache] = 6 << 20;
  plan.items[MemoryItem::adapter] = 6 << 20;
  const auto message = [&](Verb verb) {
    return error_message(
        [&] {
          require_memory(plan, {5 << 20, "test"}, verb);
        },
        ErrorKind::resource);
  };
  const auto expect_help = [&](Verb verb, const std::string& help) {
    EXPECT_TRUE(
        message(verb).ends_with("what would help: " + help + "more nodes, or a larger limit"))
        << message(verb);
  };
  expect_help(Verb::score, "shorter sequences (--ctx-size), ");
  expect_help(Verb::chat, "shorter sequences (--predict, --ctx-size), ");
  expect_help(Verb::generate,
              "shorter sequences (--predict, --ctx-size), fewer at a time (--parallel), ");
  expect_help(Verb::bench_model, "shorter sequences (--n-prompt, --n-gen, --prompt-gen), ");
  expect_help(Verb::sft,
              "shorter sequences (--ctx-size), fewer --lora-targets, a smaller --lora-rank, ");
}

TEST(Memory, ShortageNamesTheFormatOfExperts) {
  MemoryPlan plan{.num_ranks = 1};
  plan.items[MemoryItem::expert] = 6 << 20;
  plan.items[MemoryItem::dense] = 1 << 20;
  const auto message = [&](std::initializer_list<std::pair<Format, std::int64_t>> formats) {
    plan.expert_formats = {};
    for (const auto& [format, bytes] : formats) {
      plan.expert_formats[static_cast<std::size_t>(format)] = bytes;
    }
    return error_message(
        [&] {
          require_memory(plan, {5 << 20, "test"}, Verb::generate);
        },
        ErrorKind::resource);
  };
  const std::string mixed = message({{Format::int8, 1 << 20}, {Format::bf16, 5 << 20}});
  EXPECT_NE(mixed.find("experts 6.00 MiB in bf16 and int8,"), std::string::npos) << mixed;
  EXPECT_NE(mixed.find("--expert-format"), std::string::npos) << mixed;
  for (const Format format : {Format::nvfp4, Format::int4, Format::f32}) {
    const std::string small = message({{format, 6 << 20}});
    EXPECT_EQ(small.find("--expert-format"), std::string::npos) << small;
  }
}

TEST(Memory, WeightsAreToldByFormat) {
  WeightBytes::ByFormat experts{};
  WeightBytes::ByFormat others{};
  EXPECT_EQ(weights_text(experts, others), "experts none, others none");
  experts[static_cast<std::size_t>(Format::mxfp4)] = 3 << 20;
  others[static_cast<std::size_t>(Format::f32)] = 1 << 10;
  others[static_cast<std::size_t>(Format::bf16)] = 2 << 10;
  EXPECT_EQ(weights_text(experts, others),
            "experts 3.00 MiB mxfp4, others 2.00 KiB bf16 and 1.00 KiB f32");
}

TEST(Prompts, PlainLinesStandAsTheyAre) {
  const std::vector<Prompt> prompts = parse_prompts("one\r\n\n two \n \t\nthree", "file");
  ASSERT_EQ(prompts.size(), 3U) << "blank lines are none";
  EXPECT_EQ(prompts[0].text, "one");
  EXPECT_EQ(prompts[1].text, " two ");
  EXPECT_EQ(prompts[2].where, "file line 5");
  EXPECT_TRUE(parse_prompts("", "file").empty());
}

TEST(Prompts, AFileThatCannotBeReadIsToldWithTheReason) {
  const auto message = [](const std::string& path) {
    return test::error_message([&] { (void)read_file_bytes(path); }, ErrorKind::file);
  };
  const std::string name(300, 'x');
  EXPECT_EQ(message(name), name + ": File name too long");
  EXPECT_EQ(message("/no/such/file"), "/no/such/file: no such file");
  EXPECT_EQ(message("/"), "/: cannot be read: Is a directory");
  EXPECT_EQ(message("/dev/null/x"), "/dev/null/x: Not a directory");
  // Nothing is mapped at its beginning.
  EXPECT_EQ(message("/proc/self/mem"), "/proc/self/mem: cannot be read: Input/output error");
}

TEST(Prompts, JsonLinesHaveAPromptAndPerhapsAnId) {
  const std::vector<Prompt> prompts = parse_prompts(
      "{\"prompt\": \"a\\nb\", \"id\": 7}\n\n{\"id\": \"x\", \"prompt\": \"\"}\n", "f");
  ASSERT_EQ(prompts.size(), 2U);
  EXPECT_EQ(prompts[0].text, "a\nb");
  EXPECT_EQ(prompts[0].fields().id, "7");
  EXPECT_EQ(prompts[1].fields().id, "\"x\"");
  EXPECT_EQ(prompts[1].where, "f line 3");
  const std::vector<Prompt> bad = parse_prompts("{\"text\": 1, \"id\": \"x\"}\n{\n", "f");
  ASSERT_EQ(bad.size(), 2U);
  ASSERT_TRUE(bad[0].error && bad[1].error);
  EXPECT_EQ(bad[0].error->kind(), ErrorKind::file);
  EXPECT_NE(std::string_view(bad[0].error->what()).find("f line 1: unknown field \"text\""),
            std::string::npos);
  EXPECT_EQ(bad[0].fields().id, "\"x\"");
}

TEST(ModelFacts, AttentionSeesKeysOnceAndWindowsCutThem) {
  GqaConfig attention{.num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  ModelConfig config;
  config.layers.push_back({std::make_shared<GqaKind>(attention), nullptr});
  attention.window = 3;
  config.layers.push_back({std::make_shared<GqaKind>(attention), nullptr});
  // 5 tokens see 1+2+3+4+5 keys, and 1+2+3+3+3 with a window of 3.
  const MixerWork work = mixer_work(config, Precision::bf16, 5);
  EXPECT_DOUBLE_EQ(work.flops, 4.0 * 8 * (15 + 12));
  EXPECT_DOUBLE_EQ(work.cache_bytes, 2.0 * 4 * 2 * (15 + 12));
}

TEST(Progress, LineShowsShareAndTimeLeft) {
  const std::string line = progress_line("loading", {1 << 20, 4 << 20, 2.0});
  EXPECT_NE(line.find("25 %"), std::string::npos) << line;
  EXPECT_NE(line.find("1.00 MiB of 4.00 MiB"), std::string::npos) << line;
  EXPECT_NE(line.find("6 s left"), std::string::npos) << line;
}

TEST(SelfTest, ExchangeArrivesOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      EXPECT_EQ(test_exchange(comm, 3, 64).bytes_per_rank, 3 * 64 * (ranks - 1));
    });
  }
}

TEST(SelfTest, EveryKernelOfThisCpuPasses) {
  const std::vector<KernelTest> tests = test_kernels();
  EXPECT_GE(tests.size(), 2U);
  for (const KernelTest& test : tests) EXPECT_TRUE(test.passed()) << test.kernel;
}

TEST(DiskDemand, CheckpointsAreCountedWhoseRoomIsNotTakenYet) {
  const auto most_and_last = [](const DiskDemand& demand) {
    const NewCheckpoints checkpoints = new_checkpoints(demand);
    return std::pair(checkpoints.most, checkpoints.last);
  };
  using Both = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(most_and_last({.total_steps = 10, .keep = 2}), Both(1, 1)) << "at the end alone";
  EXPECT_EQ(most_and_last({.total_steps = 10, .save_every = 10, .keep = 2}), Both(1, 1));
  EXPECT_EQ(most_and_last({.total_steps = 10, .save_every = 5, .keep = 2}), Both(2, 2));
  EXPECT_EQ(most_and_last({.total_steps = 10, .save_every = 1, .keep = 2}), Both(3, 2));
  EXPECT_EQ(most_and_last({.steps_done = 9, .total_steps = 10, .save_every = 1, .keep = 2}),
            Both(1, 1));
  EXPECT_EQ(
      most_and_last({.steps_done = 4, .total_steps = 10, .save_every = 2, .keep = 2, .there = 2}),
      Both(1, 0))
      << "a new one before an old one goes";
  EXPECT_EQ(most_and_last({.steps_done = 10, .total_steps = 10, .keep = 2, .there = 1}),
            Both(0, 0));
}

}  // namespace
}  // namespace moesaic
