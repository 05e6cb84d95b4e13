#include "launch/job/default_binding.h"

#include <errno.h>  // program_invocation_short_name
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/split.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMapping = "rmaps_base_mapping_policy";
/// Parameters of Open MPI 4 by which somebody says on which cores ranks are to run, or that name
/// files in which it may stand. mpirun hands those of its command line on in the environment.
constexpr auto kPlacing = std::to_array<std::string_view>(
    {kMapping, "hwloc_base_binding_policy", "hwloc_base_bind_to_core", "hwloc_base_bind_to_socket",
     "hwloc_base_cpu_set", "hwloc_base_cpu_list", "hwloc_base_slot_list", "orte_rankfile", "rmaps",
     "rmaps_base_bycore", "rmaps_base_cpus_per_proc", "rmaps_base_cpus_per_rank",
     "rmaps_rank_file_path", "mca_base_envar_file_prefix", "mca_base_param_file_prefix",
     "mca_base_param_files", "mca_param_files"});

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

bool places(std::string_view parameter, std::string_view value) {
  if (parameter == kMapping) return !only_deals_out(value);
  return std::ranges::find(kPlacing, parameter) != kPlacing.end();
}

/// Lines are "parameter = value", or comments.
bool places(const fs::path& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view all = line;
    const std::size_t equals = all.find('=');
    if (equals == std::string_view::npos) continue;
    if (places(trimmed(all.substr(0, equals)), trimmed(all.substr(equals + 1)))) return true;
  }
  return false;
}

/// The user's, and those of the installation that the parent is of: /usr/bin/orterun has them in
/// /etc/openmpi, PREFIX/bin/orterun in PREFIX/etc.
std::vector<fs::path> parameter_files(const Launcher::Variables& variables, const fs::path& root) {
  std::vector<fs::path> files;
  if (const char* const home = variables("HOME")) {
    files.push_back(fs::path(home) / ".openmpi/mca-params.conf");
  }
  std::error_code error;  // then the path is empty
  const fs::path parent = fs::read_symlink(root / fmt::format("proc/{}/exe", ::getppid()), error);
  for (const fs::path& folder :
       {root / "etc/openmpi", parent.parent_path().parent_path() / "etc"}) {
    files.push_back(folder / "openmpi-mca-params.conf");
    files.push_back(folder / "openmpi-mca-params-override.conf");
  }
  return files;
}

}  // namespace

bool is_bound_by_default(const Launcher::Variables& variables, const std::string& root) {
  if (variables("OMPI_MCA_orte_bound_at_launch") == nullptr) return false;
  const char* const command = variables("OMPI_COMMAND");
  if (command == nullptr || std::string_view(command) != program_invocation_short_name) {
    return false;
  }
  if (variables("LSB_AFFINITY_HOSTFILE") != nullptr) return false;  // LSF says where, in a file
  for (const std::string_view parameter : kPlacing) {
    const char* const value = variables(fmt::format("OMPI_MCA_{}", parameter).c_str());
    if (value != nullptr && places(parameter, value)) return false;
  }
  return std::ranges::none_of(parameter_files(variables, root),
                              [](const fs::path& file) { return places(file); });
}

}  // namespace moesaic
