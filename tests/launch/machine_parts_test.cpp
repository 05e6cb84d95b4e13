// What the program makes of a machine: bindings of threads, and the facts that the doctor tells.

#include <gtest/gtest.h>

#include <sched.h>

#include <cstdlib>

#include "base/json.h"
#include "launch/job/binding.h"
#include "launch/job/srun_kinds.h"
#include "launch/verbs/host_pairs.h"
#include "launch/verbs/machine_facts.h"
#include "tests/base/fake_root.h"

namespace moesaic {
namespace {

/// Two sockets of two NUMA nodes with four cores each, of two hardware threads: cpus c and c + 16.
Topology machine() {
  Topology topology{.usable_cores = 16, .machine_cores = 16, .machine_numa_nodes = 4};
  for (int core = 0; core < 16; ++core) {
    topology.cores.push_back({.cpu = core, .numa_node = core / 4, .package = core / 8});
  }
  return topology;
}

RankInfo rank_with(int threads, std::string_view cpus = "0-31", std::string_view machine = "a") {
  RankInfo rank;
  set_cpuset(rank, cpus);
  std::ranges::copy(machine, rank.machine.begin());
  rank.threads = threads;
  return rank;
}

std::vector<int> cpus_of(const Binding& binding) {
  std::vector<int> cpus;
  for (const UsableCore& core : binding.cores) cpus.push_back(core.cpu);
  return cpus;
}

TEST(Binding, RanksShareTheCoresOfTheirMachineOutByNumaNodes) {
  const std::vector<RankInfo> four(4, rank_with(4));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const Binding binding = plan_binding(four, rank, machine());
    ASSERT_EQ(binding.cores.size(), 4U) << binding.reason;
    for (const UsableCore& core : binding.cores) {
      EXPECT_EQ(core.numa_node, static_cast<int>(rank));
    }
  }
  const std::vector<RankInfo> uneven = {rank_with(10), rank_with(6)};
  EXPECT_EQ(cpus_of(plan_binding(uneven, 1, machine())),
            (std::vector<int>{10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(binding_text(plan_binding(uneven, 1, machine())),
            "cpus 10 11 12 13 14 15, NUMA nodes 2 3");
  // Ranks of another machine do not count, also where it has the same name; those of a host that
  // is on this machine do.
  std::vector<RankInfo> machines = {rank_with(16), rank_with(16, "0-31", "b")};
  EXPECT_EQ(plan_binding(machines, 1, machine()).cores.size(), 16U);
  std::vector<RankInfo> hosts = {rank_with(8), rank_with(8)};
  hosts[1].host[0] = 'x';
  EXPECT_EQ(plan_binding(hosts, 1, machine()).cores.front().cpu, 8);
}

TEST(Binding, ACpusetOfItsOwnIsFilledFromItsFirstCores) {
  Topology topology = machine();
  topology.cores.erase(topology.cores.begin() + 8, topology.cores.end());
  const std::vector<RankInfo> ranks = {rank_with(3, "0-7,16-23"), rank_with(2, "0-7,16-23")};
  EXPECT_EQ(cpus_of(plan_binding(ranks, 0, topology)), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(cpus_of(plan_binding(ranks, 1, topology)), (std::vector<int>{4, 5}));
}

TEST(Binding, ThreadsStayFreeWhereBindingCouldHarm) {
  const auto reason = [](const std::vector<RankInfo>& ranks, const Topology& topology) {
    const Binding binding = plan_binding(ranks, 0, topology);
    EXPECT_TRUE(binding.cores.empty());
    EXPECT_EQ(binding_text(binding), "not bound: " + binding.reason);
    return binding.reason;
  };
  EXPECT_EQ(reason({rank_with(9), rank_with(8)}, machine()), "17 threads share 16 cores");
  EXPECT_EQ(reason({rank_with(4)}, machine()), "4 threads leave some of all 16 cores to others");
  EXPECT_EQ(reason({rank_with(16), rank_with(1, "0-3")}, machine()),
            "ranks 0 and 1 may use different cores that overlap");
  std::string odd;  // cpus
  for (int cpu = 1; cpu < 200; cpu += 2) odd += (odd.empty() ? "" : ",") + std::to_string(cpu);
  const RankInfo cut = rank_with(8, odd);
  EXPECT_TRUE(odd.starts_with(std::string(cut.cpus()) + ",")) << cut.cpus();
  EXPECT_EQ(reason({cut, rank_with(8, odd + ",300")}, machine()),
            "the cpus of ranks 0 and 1 are too many ranges to be compared");
  Topology limited = machine();
  limited.quota = {2.5, "/sys/fs/cgroup/cpu.max"};
  EXPECT_EQ(reason({rank_with(2)}, limited), "/sys/fs/cgroup/cpu.max allows 2.5 of 16 cores");
}

TEST(Binding, BindsEachThreadOfAPoolToACpuOfThisProcess) {
  const Topology topology = read_topology();
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof(before), &before) != 0) GTEST_SKIP() << "more than 1024 cpus";
  for (const int threads :
       {1, static_cast<int>(topology.cores.size()), static_cast<int>(topology.cores.size()) + 1}) {
    ThreadPool pool(threads);
    if (!bind_threads(pool, {.cores = topology.cores})) GTEST_SKIP() << "the system refuses";
    std::vector<int> allowed(static_cast<std::size_t>(threads));
    pool.parallel_for(1000, [&](std::int64_t, int worker) {
      cpu_set_t own;
      if (sched_getaffinity(0, sizeof(own), &own) == 0) {
        allowed[static_cast<std::size_t>(worker)] = CPU_COUNT(&own);
      }
    });
    const bool has_enough = threads <= static_cast<int>(topology.cores.size());
    const int expected = has_enough ? 1 : static_cast<int>(topology.cores.size());
    cpu_set_t own;  // of worker 0, which may have come too late for a task
    ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
    EXPECT_EQ(CPU_COUNT(&own), expected);
    for (const int count : allowed) EXPECT_TRUE(count == 0 || count == expected) << count;
  }
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(MachineFacts, SayUnknownWhereAMachineTellsNothing) {
  const test::FakeRoot nothing;
  const MachineFacts facts = machine_facts({}, nothing.path());
  EXPECT_EQ(facts.huge_pages, "transparent ones unknown");
  EXPECT_EQ(facts.shared_memory, "unknown");
  EXPECT_EQ(facts.cpu_quota, "none");
  EXPECT_EQ(facts.transports, "unknown");  // this process has no MPI
  EXPECT_EQ(facts.ucx, "unknown");
  EXPECT_FALSE(facts.process_manager.empty());
  EXPECT_FALSE(facts.slurm.empty());
}

TEST(MachineFacts, AreReadFromWhereSystemsHaveThem) {
  const test::FakeRoot root;
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.write("proc/meminfo", "HugePages_Total:      12\nHugepagesize:       2048 kB\n");
  root.write("dev/shm/file", "");
  const MachineFacts facts = machine_facts({.quota = {1.5, "/sys/fs/cgroup/cpu.max"}}, root.path());
  EXPECT_EQ(facts.huge_pages, "transparent ones madvise; 12 of 2.00 MiB reserved");
  EXPECT_NE(facts.shared_memory.find(" free"), std::string::npos) << facts.shared_memory;
  EXPECT_EQ(facts.cpu_quota, "1.5 cores (/sys/fs/cgroup/cpu.max)");
}

TEST(MachineFacts, TellMpisTransportsAndHowToUseUcx) {
  const std::string lib = "/usr/lib/openmpi3/";
  const std::vector<std::string> all = {lib + "mca_pml_ob1.so",  lib + "mca_pml_ucx.so",
                                        lib + "mca_btl_tcp.so",  lib + "mca_btl_vader.so",
                                        lib + "mca_coll_han.so", lib + "libmpi.so"};
  const std::vector<std::string> live = {lib + "mca_pml_ob1.so", lib + "mca_btl_tcp.so"};
  const TransportFacts facts = transport_facts(live, all, false);
  EXPECT_EQ(facts.transports, "pml ob1, btl tcp in use; compiled in: pml ob1 ucx, btl tcp vader");
  EXPECT_NE(facts.ucx.find("export OMPI_MCA_pml=ucx"), std::string::npos);
  EXPECT_EQ(facts.ucx.find("doctor on two"), std::string::npos);
  EXPECT_NE(transport_facts(live, all, true).ucx.find("doctor on two"), std::string::npos);
  EXPECT_EQ(transport_facts(all, all, true).ucx, "in use");
  EXPECT_EQ(transport_facts(live, live, true).ucx, "not compiled in");
}

TEST(MachineFacts, TellWhatSrunTakes) {
  EXPECT_EQ(mpi_kinds("MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\n"
                      "specific pmix plugin versions available: pmix_v4\n"),
            (std::vector<std::string>{"pmix", "none", "pmi2", "pmix_v4"}));
  EXPECT_EQ(mpi_kinds("srun: MPI types are...\nsrun: pmi2\nsrun: none\n"),
            (std::vector<std::string>{"pmi2", "none"}));
  EXPECT_TRUE(mpi_kinds("slurm_load_ctl_conf error: Unable to contact slurm controller").empty());
}

TEST(HostPairs, ABandwidthIsToldOrNot) {
  const std::vector<HostPair> pairs = {
      {"a", "b", {.latency_seconds = 2e-5, .bytes_per_second = 1.25e9}},
      {"a", "c", {.latency_seconds = 4e-3}}};
  EXPECT_EQ(pairs_text(pairs),
            "hosts: a to b: 20.0 us, 1.250 GB/s\n"
            "hosts: a to c: 4000.0 us, bandwidth too noisy to tell: hosts or network are busy\n");
  const Json json = Json::parse(pairs_json(pairs), "hosts");
  EXPECT_EQ(json.at(std::int64_t{0}).at("bytes_per_second").as_double(), 1.25e9);
  EXPECT_TRUE(json.at(std::int64_t{1}).find("bytes_per_second") == std::nullopt);
  EXPECT_NEAR(json.at(std::int64_t{1}).at("microseconds").as_double(), 4000, 1e-9);
}

TEST(Advice, IsALineToType) {
  RankInfo wide = rank_with(16);
  wide.numa_nodes = 4;
  const std::vector<std::string> lines = advice(std::vector<RankInfo>{wide, wide});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("rank 0 runs 16 threads on 4 NUMA nodes"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("--map-by ppr:1:numa --bind-to numa"), std::string::npos) << lines[0];
  EXPECT_TRUE(advice(std::vector<RankInfo>(4, wide)).empty());
  const std::vector<RankInfo> alone = {rank_with(2)};
  const char* before = std::getenv("SLURM_NTASKS");
  const std::string kept = before != nullptr ? before : "";
  setenv("SLURM_NTASKS", "4", 1);
  ASSERT_EQ(advice(alone).size(), 1U);
  EXPECT_NE(advice(alone)[0].find("srun --mpi=pmix"), std::string::npos);
  kept.empty() ? unsetenv("SLURM_NTASKS") : setenv("SLURM_NTASKS", kept.c_str(), 1);
}

}  // namespace
}  // namespace moesaic
