#include "base/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace moesaic {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> read_number(const fs::path& path) {
  std::ifstream stream(path);
  std::int64_t value = 0;
  if (!(stream >> value)) return std::nullopt;  // "max" means no limit
  return value;
}

/// A "Key:   123 kB" line of a /proc file, in bytes.
std::optional<std::int64_t> read_kib_line(const fs::path& path, std::string_view key) {
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    std::int64_t kib = 0;
    if (rest >> kib) return kib * 1024;
  }
  return std::nullopt;
}

/// Bytes of reclaimable page cache in a memory.stat file.
std::int64_t reclaimable_bytes(const fs::path& stat_file) {
  std::ifstream stream(stat_file);
  std::int64_t sum = 0;
  std::string key;
  std::int64_t value = 0;
  while (stream >> key >> value) {
    if (key == "inactive_file" || key == "active_file") sum += value;
  }
  return sum;
}

struct CgroupFiles {
  std::string_view hierarchy;  // below /sys/fs/cgroup
  std::string_view limit;
  std::string_view usage;
};

constexpr CgroupFiles kVersion2{"", "memory.max", "memory.current"};
constexpr CgroupFiles kVersion1{"memory", "memory.limit_in_bytes", "memory.usage_in_bytes"};

/// Lowers `limit` by the limits of the cgroup at `relative` and of all its ancestors.
void apply_cgroup(const fs::path& mount, std::string_view relative, const CgroupFiles& files,
                  MemoryLimit& limit) {
  const fs::path base = mount / files.hierarchy;
  fs::path group = (base / fs::path(relative).relative_path()).lexically_normal();
  while (true) {
    if (const auto bytes = read_number(group / files.limit)) {
      const std::int64_t used = read_number(group / files.usage).value_or(0);
      const std::int64_t kept =
          std::max<std::int64_t>(0, used - reclaimable_bytes(group / "memory.stat"));
      const std::int64_t left = std::max<std::int64_t>(0, *bytes - kept);
      if (left < limit.available_bytes) limit = {left, (group / files.limit).string()};
    }
    if (group == base || !group.has_relative_path() || group == group.parent_path()) return;
    group = group.parent_path();
    if (group.string().size() < base.string().size()) return;
  }
}

}  // namespace

MemoryLimit memory_limit(const std::string& root) {
  const fs::path base(root);
  MemoryLimit limit{read_kib_line(base / "proc/meminfo", "MemAvailable:")
                        .value_or(std::numeric_limits<std::int64_t>::max()),
                    "MemAvailable"};
  std::ifstream groups(base / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "id:controllers:path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") apply_cgroup(base / "sys/fs/cgroup", path, kVersion2, limit);
    if (controllers.find(",memory,") != std::string::npos) {
      apply_cgroup(base / "sys/fs/cgroup", path, kVersion1, limit);
    }
  }
  return limit;
}

std::int64_t peak_resident_bytes() {
  return read_kib_line("/proc/self/status", "VmHWM:").value_or(0);
}

ResidentBytes resident_bytes() {
  const auto line = [](std::string_view key) {
    return read_kib_line("/proc/self/status", key).value_or(0);
  };
  return {.peak = line("VmHWM:"),
          .anonymous = line("RssAnon:"),
          .file = line("RssFile:"),
          .shared = line("RssShmem:")};
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kUnits[unit]);
}

}  // namespace moesaic
