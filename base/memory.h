#pragma once

#include <cstdint>
#include <string>

namespace moesaic {

/// What this process may still allocate on this machine.
struct MemoryLimit {
  std::int64_t available_bytes = 0;  ///< the smaller of what the kernel and the cgroups leave
  std::string source;                ///< "MemAvailable" or the cgroup file that sets the limit
};

/// Reads /proc/meminfo and the memory limits of this process's cgroups (v1 and v2, all ancestors).
/// `root` replaces "/" in tests. Page cache counts as available.
[[nodiscard]] MemoryLimit memory_limit(const std::string& root = "/");

/// Peak resident bytes of this process so far (VmHWM).
[[nodiscard]] std::int64_t peak_resident_bytes();

/// Resident bytes of this process.
struct ResidentBytes {
  std::int64_t peak = 0;       ///< of all three together, so far
  std::int64_t anonymous = 0;  ///< its own
  std::int64_t file = 0;       ///< mapped files: programs, libraries, weights
  std::int64_t shared = 0;     ///< shared segments, as far as it has touched them
};
[[nodiscard]] ResidentBytes resident_bytes();

/// "1.50 GiB", "12.0 MiB", "312 B".
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

}  // namespace moesaic
