// What ranks tell of themselves, and what is chosen and warned of by it.

#include "launch/job/rank_info.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "comm/thread_communicator.h"
#include "launch/job/lost_hosts.h"
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

TEST(RankInfo, CoresAreOfAMachineWhateverNodesAndHostsItIs) {
  std::vector<RankInfo> ranks = {rank_info("0-7", 8, 8, 0), rank_info("0-7", 8, 8, 1)};
  ranks[1].host[0] = 'x';
  EXPECT_EQ(share_cores(ranks), (std::vector<int>{4, 4}));
  ranks[0].threads = ranks[1].threads = 8;
  EXPECT_EQ(launch_warnings(ranks, kNone).size(), 1U);
  EXPECT_FALSE(on_one_host(ranks[0], ranks[1]));
  ranks[1] = ranks[0];  // of the same name and node
  ranks[1].machine[0] = 'y';
  EXPECT_EQ(share_cores(ranks), (std::vector<int>{8, 8}));
  EXPECT_TRUE(launch_warnings(ranks, kNone).empty());
  EXPECT_TRUE(on_one_host(ranks[0], ranks[1]));
}

TEST(RankInfo, AQuotaIsOfOneHostOfAMachine) {
  run_thread_ranks(2, [](Communicator& comm) {
    Topology topology{.usable_cores = 4, .machine_cores = 8, .cpuset = "0-7"};
    const auto machine = [&] { return gather_ranks(comm, comm, topology, 0).front().machine; };
    const auto whole = machine();
    EXPECT_EQ(gather_ranks(comm, comm, topology, 0)[1].threads, 2);
    topology.quota = {4, "cpu.max"};
    EXPECT_NE(std::string_view(machine().data()).find(host_name()), std::string_view::npos);
    EXPECT_NE(machine(), whole);
  });
}

TEST(Launcher, is_known_by_its_variables) {
  const Launcher alone = kNone;
  EXPECT_FALSE(alone.is_mpirun() || alone.is_srun() || alone.is_process_manager());
  EXPECT_TRUE(alone.is_none());
  EXPECT_EQ(alone.started().processes, 1);
  EXPECT_FALSE(alone.is_later_process());

  const Launcher mpirun = launcher_of(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}});
  EXPECT_TRUE(mpirun.is_mpirun());
  EXPECT_FALSE(mpirun.is_none());
  EXPECT_FALSE(mpirun.is_process_manager());
  EXPECT_EQ(mpirun.started().processes, 4);
  EXPECT_EQ(std::string(mpirun.started().variable), "OMPI_COMM_WORLD_SIZE");
  EXPECT_FALSE(mpirun.is_later_process());

  const Launcher srun =
      launcher_of({{"SLURM_PROCID", "2"}, {"PMIX_RANK", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}});
  EXPECT_TRUE(srun.is_srun() && srun.is_process_manager());
  EXPECT_FALSE(srun.is_none());
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

TEST(RankInfo, CopiesOfExpertsThatLieOnNodesInOtherWaysAreRefused) {
  const auto check = [](const std::vector<int>& nodes, int sharers) {
    std::vector<RankInfo> ranks;
    for (const int node : nodes) ranks.push_back(rank_info("0", 1, 8, node));
    require_like_copies(ranks, sharers);
  };
  check({0, 0, 0, 0, 1, 1}, 6);
  check({0, 0, 0, 1, 1, 1}, 3);
  check({0, 0, 1, 1}, 1);
  check({0, 1, 0, 0, 1, 0}, 3);
  check({0, 1, 2, 3}, 2);
  for (const std::vector<int>& nodes : {std::vector{0, 0, 0, 0, 1, 1}, {0, 1, 0, 0, 1, 1}}) {
    const std::string message = error_message([&] { check(nodes, 3); }, ErrorKind::usage);
    EXPECT_NE(message.find("ranks 3 to 5"), std::string::npos) << message;
  }
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

}  // namespace
}  // namespace moesaic
