// On which cores ranks run on machines of other shapes than this one.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/thread_communicator.h"
#include "launch/job/binding.h"

namespace moesaic {
namespace {

using Texts = std::vector<std::string>;

struct Case {
  const char* machine;  // as HWLOC_SYNTHETIC has it: cpus are numbered in order
  int ranks;
  Texts bindings;            // of each
  std::int64_t threads = 0;  // of each; 0: their share
};

Topology topology_of(const char* machine) {
  setenv("HWLOC_SYNTHETIC", machine, 1);
  const Topology topology = read_topology();
  unsetenv("HWLOC_SYNTHETIC");
  return topology;
}

/// Of ranks on one machine that may use all of it, in their order.
Texts bindings_of(const Case& job) {
  const Topology topology = topology_of(job.machine);
  Texts texts(static_cast<std::size_t>(job.ranks));
  run_thread_ranks(job.ranks, [&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    const std::vector<RankInfo> ranks = gather_ranks(comm, comm, topology, job.threads);
    texts[self] = binding_text(plan_binding(ranks, self, topology));
  });
  return texts;
}

class Machine : public testing::TestWithParam<Case> {};

TEST_P(Machine, HasCoresThatLieTogetherForEachRank) {
  EXPECT_EQ(bindings_of(GetParam()), GetParam().bindings)
      << GetParam().ranks << " ranks on " << GetParam().machine;
}

constexpr const char* kFourNodes = "pack:2 numa:2 core:4 pu:1";
INSTANTIATE_TEST_SUITE_P(
    TwoPackagesOfTwoNodes, Machine,
    testing::Values(
        Case{kFourNodes, 1, {"cpus 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15, NUMA nodes 0 1 2 3"}},
        Case{
            kFourNodes,
            2,
            {"cpus 0 1 2 3 4 5 6 7, NUMA nodes 0 1", "cpus 8 9 10 11 12 13 14 15, NUMA nodes 2 3"}},
        Case{kFourNodes,
             3,
             {"cpus 0 1 2 3 4, NUMA nodes 0 1", "cpus 5 6 7 8 9, NUMA nodes 1 2",
              "cpus 10 11 12 13 14, NUMA nodes 2 3"}},
        Case{kFourNodes,
             4,
             {"cpus 0 1 2 3, NUMA node 0", "cpus 4 5 6 7, NUMA node 1",
              "cpus 8 9 10 11, NUMA node 2", "cpus 12 13 14 15, NUMA node 3"}},
        Case{kFourNodes,
             6,
             {"cpus 0 1, NUMA node 0", "cpus 2 3, NUMA node 0", "cpus 5 6, NUMA node 1",
              "cpus 8 9, NUMA node 2", "cpus 10 11, NUMA node 2", "cpus 13 14, NUMA node 3"}},
        Case{kFourNodes,
             8,
             {"cpus 0 1, NUMA node 0", "cpus 2 3, NUMA node 0", "cpus 4 5, NUMA node 1",
              "cpus 6 7, NUMA node 1", "cpus 8 9, NUMA node 2", "cpus 10 11, NUMA node 2",
              "cpus 12 13, NUMA node 3", "cpus 14 15, NUMA node 3"}},
        Case{kFourNodes, 4, Texts(4, "not bound: 12 threads leave some of all 16 cores to others"),
             3}));

// A thread has a core of its own, of which it is on the first hardware thread.
constexpr const char* kNeighbours = "pack:2 [numa] core:4 pu:2";
constexpr const char* kByPackages =
    "pack:2 [numa] core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)";
constexpr const char* kByTurns =
    "pack:2 [numa] core:4 pu:2(indexes=0,8,2,10,4,12,6,14,1,9,3,11,5,13,7,15)";
INSTANTIATE_TEST_SUITE_P(
    TwoHardwareThreadsACore, Machine,
    testing::Values(
        Case{kNeighbours, 2, {"cpus 0 2 4 6, NUMA node 0", "cpus 8 10 12 14, NUMA node 1"}},
        Case{kByPackages, 2, {"cpus 0 1 2 3, NUMA node 0", "cpus 4 5 6 7, NUMA node 1"}},
        Case{kByTurns, 2, {"cpus 0 2 4 6, NUMA node 0", "cpus 1 3 5 7, NUMA node 1"}},
        Case{kByTurns,
             4,
             {"cpus 0 2, NUMA node 0", "cpus 4 6, NUMA node 0", "cpus 1 3, NUMA node 1",
              "cpus 5 7, NUMA node 1"}}));

constexpr const char* kNoNodes = "pack:1 core:8 pu:1";
INSTANTIATE_TEST_SUITE_P(
    OnePackageWithoutNodes, Machine,
    testing::Values(Case{kNoNodes, 1, {"cpus 0 1 2 3 4 5 6 7, NUMA node 0"}},
                    Case{kNoNodes, 2, {"cpus 0 1 2 3, NUMA node 0", "cpus 4 5 6 7, NUMA node 0"}},
                    Case{kNoNodes,
                         3,
                         {"cpus 0 1, NUMA node 0", "cpus 2 3, NUMA node 0",
                          "cpus 5 6, NUMA node 0"}}));

constexpr const char* kClusters = "pack:1 group:4 [numa] l3:1 core:2 pu:2";
INSTANTIATE_TEST_SUITE_P(
    NodesInsideAPackage, Machine,
    testing::Values(
        Case{kClusters, 2, {"cpus 0 2 4 6, NUMA nodes 0 1", "cpus 8 10 12 14, NUMA nodes 2 3"}},
        Case{kClusters,
             4,
             {"cpus 0 2, NUMA node 0", "cpus 4 6, NUMA node 1", "cpus 8 10, NUMA node 2",
              "cpus 12 14, NUMA node 3"}}));

}  // namespace
}  // namespace moesaic
