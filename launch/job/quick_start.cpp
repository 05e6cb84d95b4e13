#include "launch/job/quick_start.h"

namespace moesaic {

std::vector<std::pair<std::string, std::string>> quick_start_variables(
    const Launcher::Variables& variables) {
  const Launcher launcher(variables);
  const auto is_chosen = [&](const char* name) { return variables(name) != nullptr; };
  std::vector<std::pair<std::string, std::string>> result;
  // Open MPI starts a daemon for a process that no launcher has started, which would serve
  // MPI_Comm_spawn alone. Without it all such processes have the same folder in TMPDIR, which one
  // removes while another makes it: so none has one.
  constexpr const char* kWithoutDaemon = "OMPI_MCA_ess_singleton_isolated";
  if (launcher.is_none() && !is_chosen(kWithoutDaemon)) {
    result.emplace_back(kWithoutDaemon, "1");
    result.emplace_back("OMPI_MCA_orte_create_session_dirs", "0");
  }
  // Open MPI loads the libraries of all networks to ask which are there. That of Omni-Path (psm2)
  // measures the processor's clock for 0.2 s before it says no.
  if (launcher.is_one_host() && !is_chosen("OMPI_MCA_pml") && !is_chosen("OMPI_MCA_mtl")) {
    result.emplace_back("OMPI_MCA_pml", "ob1");
  }
  return result;
}

}  // namespace moesaic
