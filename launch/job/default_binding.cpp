#include "launch/job/default_binding.h"

#include <errno.h>  // program_invocation_short_name

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "launch/job/mpi_parameters.h"

namespace moesaic {
namespace {

constexpr std::string_view kMapping = "rmaps_base_mapping_policy";
/// Parameters of Open MPI 4 by which somebody says on which cores ranks are to run.
constexpr auto kPlacing = std::to_array<std::string_view>(
    {kMapping, "hwloc_base_binding_policy", "hwloc_base_bind_to_core", "hwloc_base_bind_to_socket",
     "hwloc_base_cpu_set", "hwloc_base_cpu_list", "hwloc_base_slot_list", "orte_rankfile", "rmaps",
     "rmaps_base_bycore", "rmaps_base_cpus_per_proc", "rmaps_base_cpus_per_rank",
     "rmaps_rank_file_path"});

/// Whether a policy only deals ranks out: slot, node, ppr:2:node, and ppr:1:numa, whose ranks are
/// bound as if there were no such words. With others (core, numa, slot:PE=4) it says to what they
/// are bound.
bool only_deals_out(std::string_view policy) {
  std::string words(policy);
  std::ranges::transform(words, words.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view first = std::string_view(words).substr(0, words.find(':'));
  return (first.empty() || first == "slot" || first == "node" || first == "ppr") &&
         words.find("pe=") == std::string::npos;
}

}  // namespace

bool is_bound_by_default(const Launcher::Variables& variables, const std::string& root) {
  if (variables("OMPI_MCA_orte_bound_at_launch") == nullptr) return false;
  const char* const command = variables("OMPI_COMMAND");
  if (command == nullptr || std::string_view(command) != program_invocation_short_name) {
    return false;
  }
  if (variables("LSB_AFFINITY_HOSTFILE") != nullptr) return false;  // LSF says where, in a file
  const MpiParameters parameters(variables, root);
  if (parameters.has_further_files()) return false;
  return std::ranges::none_of(kPlacing, [&](std::string_view parameter) {
    return std::ranges::any_of(parameters.values(parameter), [&](const std::string& value) {
      return parameter != kMapping || !only_deals_out(value);
    });
  });
}

}  // namespace moesaic
