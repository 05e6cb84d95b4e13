// What Open MPI is told to leave out when a job starts.

#include "launch/job/quick_start.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "tests/base/fake_root.h"

namespace moesaic {
namespace {

using Chosen = std::vector<std::pair<std::string, std::string>>;
using Environment = std::map<std::string, std::string>;

const std::pair<std::string, std::string> kWithinAHost = {"OMPI_MCA_pml", "ob1"};
const Chosen kWithoutDaemon = {{"OMPI_MCA_ess_singleton_isolated", "1"},
                               {"OMPI_MCA_orte_create_session_dirs", "0"}};

/// On a machine that has the files of `root`.
Chosen started_by(const test::FakeRoot& root, const Environment& variables) {
  const auto value = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return quick_start_variables(value, root.path());
}

TEST(QuickStart, LeavesOutTheDaemonOfAProcessAlone) {
  const test::FakeRoot root;
  Chosen alone = kWithoutDaemon;
  alone.push_back(kWithinAHost);
  EXPECT_EQ(started_by(root, {}), alone);
  EXPECT_EQ(started_by(root, {{"OMPI_MCA_ess_singleton_isolated", "0"}}), Chosen{kWithinAHost});
}

TEST(QuickStart, LeavesOutNetworksWithinAHost) {
  const test::FakeRoot root;
  Environment mpirun = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "0"}};
  EXPECT_EQ(started_by(root, mpirun), Chosen{}) << "it is not known whether they are on one host";
  mpirun["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_EQ(started_by(root, mpirun), Chosen{});
  mpirun["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  EXPECT_EQ(started_by(root, mpirun), Chosen{kWithinAHost});
  EXPECT_EQ(started_by(root, {{"PMIX_RANK", "0"}, {"SLURM_PROCID", "0"}}), Chosen{});
}

/// PREFIX of this process's PREFIX/lib/libmpi.so.40, without the first "/"; empty if it has none.
std::string mpi_prefix() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::filesystem::path file = line.substr(std::min(line.find('/'), line.size()));
    if (!file.filename().string().starts_with("libmpi.so")) continue;
    return file.relative_path().parent_path().parent_path();
  }
  return "";
}

TEST(QuickStart, LeavesTheNetworkToWhoeverHasChosenOne) {
  for (const char* name : {"pml", "mtl", "mca_base_envar_file_prefix", "mca_base_param_files"}) {
    const test::FakeRoot root;
    EXPECT_EQ(started_by(root, {{"OMPI_MCA_" + std::string(name), "ucx"}}), kWithoutDaemon) << name;
  }
  ASSERT_NE(mpi_prefix(), "");
  for (const std::string& file : {std::string("home/.openmpi/mca-params.conf"),
                                  std::string("etc/openmpi/openmpi-mca-params.conf"),
                                  mpi_prefix() + "/etc/openmpi-mca-params.conf"}) {
    const test::FakeRoot root;
    const Environment variables = {{"HOME", root.path() + "/home"}};
    root.write(file, "pml = ^ucx\nmtl = ^ofi\nbtl = ^uct\n");
    EXPECT_EQ(started_by(root, variables).back(), kWithinAHost) << "others are out of the question";
    root.write(file, "pml = ucx\n");
    EXPECT_EQ(started_by(root, variables), kWithoutDaemon) << file;
    root.write(file, "pml = ^ob1\n");
    EXPECT_EQ(started_by(root, variables), kWithoutDaemon) << file;
  }
}

}  // namespace
}  // namespace moesaic
