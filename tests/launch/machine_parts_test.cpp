// What the program makes of a machine: bindings of threads.

#include <gtest/gtest.h>

#include <sched.h>

#include "launch/job/binding.h"

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

RankInfo rank_with(int threads, std::string_view cpus = "0-31", std::string_view host = "a") {
  RankInfo rank;
  std::ranges::copy(cpus, rank.cpuset.begin());
  std::ranges::copy(host, rank.host.begin());
  rank.threads = threads;
  return rank;
}

std::vector<int> cpus_of(const Binding& binding) {
  std::vector<int> cpus;
  for (const UsableCore& core : binding.cores) cpus.push_back(core.cpu);
  return cpus;
}

TEST(Binding, RanksShareTheCoresOfTheirHostOutByNumaNodes) {
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
  // Ranks of another host do not count.
  const std::vector<RankInfo> hosts = {rank_with(16), rank_with(16, "0-31", "b")};
  EXPECT_EQ(plan_binding(hosts, 1, machine()).cores.size(), 16U);
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
    EXPECT_EQ(allowed[0], expected);
    for (const int count : allowed) EXPECT_TRUE(count == 0 || count == expected) << count;
  }
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace moesaic
