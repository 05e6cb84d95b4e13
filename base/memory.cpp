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

#include "base/cgroup.h"

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

/// Bytes of page cache that a group and those below it could do without. The first version counts
/// those of the group alone under the same names.
std::int64_t reclaimable_bytes(const ControlGroup& group) {
  const std::string prefix = group.version == 1 ? "total_" : "";
  const std::string inactive = prefix + "inactive_file";
  const std::string active = prefix + "active_file";
  std::ifstream stream(group.directory / "memory.stat");
  std::int64_t sum = 0;
  std::string key;
  std::int64_t value = 0;
  while (stream >> key >> value) {
    if (key == inactive || key == active) sum += value;
  }
  return sum;
}

/// Lowers `limit` by that of a group, which counts page cache that it could do without.
void apply_group(const ControlGroup& group, MemoryLimit& limit) {
  const bool is_new = group.version == 2;
  const fs::path file = group.directory / (is_new ? "memory.max" : "memory.limit_in_bytes");
  const auto bytes = read_number(file);
  if (!bytes) return;
  const fs::path usage = group.directory / (is_new ? "memory.current" : "memory.usage_in_bytes");
  const std::int64_t used = read_number(usage).value_or(0);
  const std::int64_t kept = std::max<std::int64_t>(0, used - reclaimable_bytes(group));
  const std::int64_t left = std::max<std::int64_t>(0, *bytes - kept);
  if (left < limit.available_bytes) limit = {left, file.string()};
}

}  // namespace

MemoryLimit memory_limit(const std::string& root) {
  const fs::path base(root);
  MemoryLimit limit{read_kib_line(base / "proc/meminfo", "MemAvailable:")
                        .value_or(std::numeric_limits<std::int64_t>::max()),
                    "MemAvailable"};
  for_each_control_group(root, "memory",
                         [&](const ControlGroup& group) { apply_group(group, limit); });
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
