#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace moesaic {

/// A control group that this process is in, by its own or by an ancestor's right.
struct ControlGroup {
  std::filesystem::path directory;
  int version = 2;
};

/// Calls for the groups of a controller ("cpu", "memory"), v1 and v2, from the innermost on. `root`
/// replaces "/" in tests.
void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const ControlGroup&)>& call);

/// How much of the cores the groups of this process may take, on average.
struct CpuQuota {
  double cores = 0;    ///< 0: there is no quota
  std::string source;  ///< the file that sets it
};

/// The tightest of cpu.max (v2) and cpu.cfs_quota_us (v1).
[[nodiscard]] CpuQuota cpu_quota(const std::string& root = "/");

}  // namespace moesaic
