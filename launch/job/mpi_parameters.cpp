#include "launch/job/mpi_parameters.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "base/directory.h"
#include "base/split.h"
#include "launch/job/loaded_libraries.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// PREFIX of PREFIX/bin/orterun, which is this process's parent under mpirun.
fs::path launcher_prefix(const fs::path& root) {
  std::error_code error;  // then the path is empty
  return fs::read_symlink(root / fmt::format("proc/{}/exe", ::getppid()), error)
      .parent_path()
      .parent_path();
}

/// PREFIX of PREFIX/lib/libmpi.so.40, which is part of this process.
fs::path library_prefix(const fs::path& root) {
  for (const std::string& library : loaded_libraries()) {
    if (!fs::path(library).filename().string().starts_with("libmpi.so")) continue;
    std::error_code error;  // then the path is empty
    const fs::path file = fs::canonical(library, error);
    return file.empty() ? file : root / file.relative_path().parent_path().parent_path();
  }
  return {};
}

/// PREFIX/etc, and where distributions have it: /etc/openmpi, /etc/openmpi-x86_64.
std::set<fs::path> parameter_folders(const fs::path& root) {
  std::set<fs::path> folders;
  for (const fs::path& prefix : {launcher_prefix(root), library_prefix(root)}) {
    if (!prefix.empty()) folders.insert(prefix / "etc");
  }
  std::error_code error;
  for (const auto& entry : entries_of(root / "etc", error)) {
    if (entry.path().filename().string().starts_with("openmpi")) folders.insert(entry.path());
  }
  return folders;
}

}  // namespace

MpiParameters::MpiParameters(Launcher::Variables variables, const std::string& root)
    : variables_(std::move(variables)) {
  if (const char* const home = variables_("HOME")) {
    read(fs::path(home) / ".openmpi/mca-params.conf");
  }
  for (const fs::path& folder : parameter_folders(root)) {
    read(folder / "openmpi-mca-params.conf");
    read(folder / "openmpi-mca-params-override.conf");
  }
}

/// Lines are "parameter = value", or comments.
void MpiParameters::read(const std::string& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view all = line;
    const std::size_t equals = all.find('=');
    if (equals == std::string_view::npos) continue;
    lines_.push_back({std::string(trimmed(all.substr(0, equals))),
                      std::string(trimmed(all.substr(equals + 1)))});
  }
}

std::vector<std::string> MpiParameters::values(std::string_view name) const {
  std::vector<std::string> result;
  if (const char* const value = variables_(fmt::format("OMPI_MCA_{}", name).c_str())) {
    result.emplace_back(value);
  }
  for (const Line& line : lines_) {
    if (line.name == name) result.push_back(line.value);
  }
  return result;
}

bool MpiParameters::has_further_files() const {
  for (const char* name : {"mca_base_envar_file_prefix", "mca_base_param_file_prefix",
                           "mca_base_param_files", "mca_param_files"}) {
    if (!values(name).empty()) return true;
  }
  return false;
}

}  // namespace moesaic
