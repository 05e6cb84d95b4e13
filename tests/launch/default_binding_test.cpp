// What tells that nobody has asked for the cores that Open MPI has bound a rank to.

#include "launch/job/default_binding.h"

#include <errno.h>  // program_invocation_short_name
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/base/fake_root.h"

namespace moesaic {
namespace {

/// A rank as a plain mpirun of Open MPI 4 starts it, on a machine that has the files of `root`.
struct Rank {
  test::FakeRoot root{};
  std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_SIZE", "2"},
                                                  {"OMPI_MCA_orte_bound_at_launch", "1"},
                                                  {"OMPI_MCA_orte_launch", "1"},
                                                  {"OMPI_COMMAND", program_invocation_short_name},
                                                  {"HOME", root.path() + "/home"}};

  [[nodiscard]] bool is_bound_by_default() const {
    const auto value = [this](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    return moesaic::is_bound_by_default(value, root.path());
  }
};

/// Of a rank with one variable more, or another one.
bool by_default(const std::string& name, const std::string& value) {
  Rank rank;
  rank.variables[name] = value;
  return rank.is_bound_by_default();
}

TEST(DefaultBinding, IsThatOfAPlainMpirun) {
  Rank rank;
  EXPECT_TRUE(rank.is_bound_by_default());
  rank.variables.erase("OMPI_MCA_orte_bound_at_launch");  // more ranks than cores, or srun
  EXPECT_FALSE(rank.is_bound_by_default());
  EXPECT_FALSE(by_default("OMPI_COMMAND", "taskset"));
  EXPECT_FALSE(by_default("LSB_AFFINITY_HOSTFILE", "/tmp/affinity"));
}

TEST(DefaultBinding, IsNotWhereSomebodySaysOnWhichCores) {
  EXPECT_FALSE(by_default("OMPI_MCA_hwloc_base_binding_policy", "core"));   // --bind-to core
  EXPECT_FALSE(by_default("OMPI_MCA_hwloc_base_bind_to_core", "1"));        // --bind-to-core
  EXPECT_FALSE(by_default("OMPI_MCA_hwloc_base_cpu_set", "0,1"));           // --cpu-set
  EXPECT_FALSE(by_default("OMPI_MCA_hwloc_base_cpu_list", "1"));            // --cpu-list
  EXPECT_FALSE(by_default("OMPI_MCA_orte_rankfile", "ranks"));              // --rankfile
  EXPECT_FALSE(by_default("OMPI_MCA_rmaps_base_cpus_per_rank", "4"));       // --cpus-per-rank
  EXPECT_FALSE(by_default("OMPI_MCA_rmaps_base_bycore", "1"));              // --bycore
  EXPECT_FALSE(by_default("OMPI_MCA_mca_base_envar_file_prefix", "file"));  // --tune
  EXPECT_FALSE(by_default("OMPI_MCA_mca_base_param_file_prefix", "file"));  // --am
  for (const char* policy : {"core", "numa", "socket", "slot:PE=4", "ppr:1:node:pe=4", ":PE=2"}) {
    EXPECT_FALSE(by_default("OMPI_MCA_rmaps_base_mapping_policy", policy)) << policy;
  }
}

TEST(DefaultBinding, IsWhereRanksAreOnlyDealtOut) {
  for (const char* policy : {"slot", "NODE", "ppr:2:node", "ppr:1:numa", ":OVERSUBSCRIBE"}) {
    EXPECT_TRUE(by_default("OMPI_MCA_rmaps_base_mapping_policy", policy)) << policy;
  }
  EXPECT_TRUE(by_default("OMPI_MCA_rmaps_base_oversubscribe", "1"));    // --oversubscribe
  EXPECT_TRUE(by_default("OMPI_MCA_rmaps_ppr_n_pernode", "2"));         // --npernode
  EXPECT_TRUE(by_default("OMPI_MCA_hwloc_base_report_bindings", "1"));  // --report-bindings
}

TEST(DefaultBinding, IsNotWhereAFileOfParametersSaysOnWhichCores) {
  for (const std::string file :
       {"home/.openmpi/mca-params.conf", "etc/openmpi/openmpi-mca-params.conf",
        "etc/openmpi-x86_64/openmpi-mca-params.conf", "opt/etc/openmpi-mca-params.conf",
        "opt/etc/openmpi-mca-params-override.conf"}) {
    const Rank rank;
    const std::string process = "proc/" + std::to_string(getppid());
    rank.root.write(process + "/status", "");
    std::filesystem::create_symlink(rank.root.path() + "/opt/bin/orterun",
                                    rank.root.path() + "/" + process + "/exe");
    rank.root.write(file, "# hwloc_base_binding_policy = core\n\nbtl = ^openib\n");
    EXPECT_TRUE(rank.is_bound_by_default()) << file;
    rank.root.write(file, "btl = ^openib\n rmaps_base_mapping_policy=slot:PE=4\n");
    EXPECT_FALSE(rank.is_bound_by_default()) << file;
    rank.root.write(file, "hwloc_base_binding_policy = core\n");
    EXPECT_FALSE(rank.is_bound_by_default()) << file;
  }
}

}  // namespace
}  // namespace moesaic
