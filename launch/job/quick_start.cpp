#include "launch/job/quick_start.h"

#include <string_view>

#include "launch/job/mpi_parameters.h"

namespace moesaic {
namespace {

/// Whether somebody has said by what messages are to go. Debian's file of parameters says by what
/// they are not to: "pml = ^ucx".
bool is_network_chosen(const MpiParameters& parameters) {
  if (parameters.has_further_files()) return true;
  for (const char* name : {"pml", "mtl"}) {
    for (const std::string& value : parameters.values(name)) {
      if (!value.starts_with('^') || value.find("ob1") != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> quick_start_variables(
    const Launcher::Variables& variables, const std::string& root) {
  const Launcher launcher(variables);
  std::vector<std::pair<std::string, std::string>> result;
  // Open MPI starts a daemon for a process that no launcher has started, which would serve
  // MPI_Comm_spawn alone. Without it all such processes have the same folder in TMPDIR, which one
  // removes while another makes it: so none has one.
  constexpr const char* kWithoutDaemon = "OMPI_MCA_ess_singleton_isolated";
  if (launcher.is_none() && variables(kWithoutDaemon) == nullptr) {
    result.emplace_back(kWithoutDaemon, "1");
    result.emplace_back("OMPI_MCA_orte_create_session_dirs", "0");
  }
  // Open MPI loads the libraries of all networks to ask which are there. That of Omni-Path (psm2)
  // measures the processor's clock for 0.2 s before it says no.
  if (launcher.is_one_host() && !is_network_chosen(MpiParameters(variables, root))) {
    result.emplace_back("OMPI_MCA_pml", "ob1");
  }
  return result;
}

}  // namespace moesaic
