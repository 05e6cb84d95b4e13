#include "base/cgroup.h"

#include <fmt/core.h>

#include <fstream>
#include <optional>
#include <vector>

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// The group at `relative` below `base` and its ancestors, up to `base`.
void for_each_ancestor(const fs::path& base, std::string_view relative, int version,
                       const std::function<void(const ControlGroup&)>& call) {
  fs::path group = (base / fs::path(relative).relative_path()).lexically_normal();
  while (true) {
    call({group, version});
    if (group == base || !group.has_relative_path() || group == group.parent_path()) return;
    group = group.parent_path();
    if (group.string().size() < base.string().size()) return;
  }
}

/// Numbers that a file starts with; fewer where it says "max".
std::vector<double> read_numbers(const fs::path& path) {
  std::ifstream stream(path);
  std::vector<double> numbers;
  for (double value = 0; stream >> value;) numbers.push_back(value);
  return numbers;
}

/// The quota of one group: microseconds of every so many.
std::optional<CpuQuota> quota_of(const ControlGroup& group) {
  const fs::path file = group.directory / (group.version == 2 ? "cpu.max" : "cpu.cfs_quota_us");
  std::vector<double> numbers = read_numbers(file);
  if (group.version == 1) {
    for (const double period : read_numbers(group.directory / "cpu.cfs_period_us")) {
      numbers.push_back(period);
    }
  }
  if (numbers.size() != 2 || !(numbers[0] > 0) || !(numbers[1] > 0)) return std::nullopt;
  return CpuQuota{numbers[0] / numbers[1], file.string()};
}

}  // namespace

void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const ControlGroup&)>& call) {
  const fs::path base = fs::path(root) / "sys/fs/cgroup";
  std::ifstream groups(fs::path(root) / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "id:controllers:path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) for_each_ancestor(base, path, 2, call);
    const bool is_of_it =
        fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos;
    if (!is_of_it) continue;
    // "cpu,cpuacct" is mounted under that name, and has links of its controllers' names.
    std::error_code error;
    const fs::path joint = base / controllers;
    for_each_ancestor(fs::is_directory(joint, error) ? joint : base / std::string(controller), path,
                      1, call);
  }
}

CpuQuota cpu_quota(const std::string& root) {
  CpuQuota tightest;
  for_each_control_group(root, "cpu", [&](const ControlGroup& group) {
    const std::optional<CpuQuota> quota = quota_of(group);
    if (quota && (tightest.cores == 0 || quota->cores < tightest.cores)) tightest = *quota;
  });
  return tightest;
}

}  // namespace moesaic
