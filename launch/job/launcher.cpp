#include "launch/job/launcher.h"

#include <string_view>

namespace moesaic {

bool Launcher::is_one_host() const {
  if (!is_mpirun()) return is_none();
  const char* const local = variables_("OMPI_COMM_WORLD_LOCAL_SIZE");
  return local != nullptr && std::string_view(local) == variables_("OMPI_COMM_WORLD_SIZE");
}

Launcher::Started Launcher::started() const {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const value = variables_(name);
    const int processes = value == nullptr ? 1 : std::atoi(value);
    if (processes > 1) return {processes, name};
  }
  return {};
}

bool Launcher::is_later_process() const {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* const rank = variables_(name)) return std::string_view(rank) != "0";
  }
  return false;
}

}  // namespace moesaic
