#include "launch/verbs/machine_facts.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/directory.h"
#include "base/memory.h"
#include "launch/job/launcher.h"
#include "launch/job/loaded_libraries.h"
#include "launch/job/srun_kinds.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

const std::string kUnknown = "unknown";

/// The value of "Key:   12" in a /proc file; -1: there is none.
std::int64_t proc_number(const fs::path& file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::int64_t value = 0;
    if (line.starts_with(key) && std::istringstream(line.substr(key.size())) >> value) return value;
  }
  return -1;
}

std::string huge_pages_text(const fs::path& root) {
  std::ifstream stream(root / "sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  std::getline(stream, text);
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']');
  std::string result = "transparent ones ";
  result +=
      begin < end && end != std::string::npos ? text.substr(begin + 1, end - begin - 1) : kUnknown;
  const std::int64_t reserved = proc_number(root / "proc/meminfo", "HugePages_Total:");
  const std::int64_t kib = proc_number(root / "proc/meminfo", "Hugepagesize:");
  if (reserved >= 0 && kib > 0) {
    result += fmt::format("; {} of {} reserved", reserved, format_bytes(kib * 1024));
  }
  return result;
}

std::string shared_memory_text(const fs::path& root) {
  struct statvfs status = {};
  if (statvfs((root / "dev/shm").c_str(), &status) != 0) return kUnknown;
  const auto bytes = [&](std::uint64_t blocks) {
    return format_bytes(static_cast<std::int64_t>(blocks * status.f_frsize));
  };
  return fmt::format("{} of {} free", bytes(status.f_bavail), bytes(status.f_blocks));
}

std::string quota_text(const Topology& topology) {
  if (topology.quota.cores == 0) return "none";
  return fmt::format("{:.3g} cores ({})", topology.quota.cores, topology.quota.source);
}

std::string process_manager_text() {
  if (Launcher().is_mpirun()) return "PMIx of mpirun";
  const char* space = std::getenv("PMIX_NAMESPACE");  // Open MPI sets one for those alone, too
  if (space != nullptr && std::string_view(space).starts_with("slurm")) return "PMIx of Slurm";
  return std::getenv("PMI_RANK") != nullptr ? "PMI" : "none: started alone";
}

bool is_in_path(std::string_view program) {
  const char* path = std::getenv("PATH");
  std::istringstream places(path != nullptr ? path : "");
  std::error_code error;
  for (std::string place; std::getline(places, place, ':');) {
    if (fs::is_regular_file(fs::path(place) / program, error)) return true;
  }
  return false;
}

std::string slurm_text() {
  if (!is_in_path("srun")) return "no srun here";
  const std::vector<std::string> kinds = srun_kinds();
  return kinds.empty() ? kUnknown : fmt::format("srun --mpi={}", fmt::join(kinds, "|"));
}

constexpr std::string_view kPlugin = "mca_";

/// {"pml", "ucx"} of a path; both empty if it is something else.
std::pair<std::string, std::string> way_of(const std::string& path) {
  const std::string name = fs::path(path).stem().string();
  if (!name.starts_with(kPlugin)) return {};
  const std::size_t end = name.find('_', kPlugin.size());
  if (end == std::string::npos) return {};
  return {name.substr(kPlugin.size(), end - kPlugin.size()), name.substr(end + 1)};
}

/// "pml ob1 ucx, btl self tcp".
std::string ways_text(std::span<const std::string> files) {
  std::map<std::string, std::set<std::string>, std::greater<>> ways;
  for (const std::string& file : files) {
    const auto [kind, name] = way_of(file);
    if (kind == "pml" || kind == "mtl" || kind == "btl") ways[kind].insert(name);
  }
  std::vector<std::string> texts;
  for (const auto& [kind, names] : ways) {
    texts.push_back(fmt::format("{} {}", kind, fmt::join(names, " ")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<std::string> live_plugins() {
  std::vector<std::string> files = loaded_libraries();
  std::erase_if(files, [](const std::string& file) { return way_of(file).first.empty(); });
  return files;
}

std::vector<std::string> plugins_beside(std::span<const std::string> files) {
  std::vector<std::string> all;
  if (files.empty()) return all;
  std::error_code error;
  for (const auto& entry : entries_of(fs::path(files.front()).parent_path(), error)) {
    all.push_back(entry.path().string());
  }
  return all;
}

bool has_ucx(std::span<const std::string> files) {
  return std::ranges::any_of(files, [](const std::string& file) {
    return way_of(file) == std::pair<std::string, std::string>("pml", "ucx");
  });
}

}  // namespace

TransportFacts transport_facts(std::span<const std::string> live, std::span<const std::string> all,
                               bool is_one_host) {
  if (live.empty()) return {kUnknown, kUnknown};
  TransportFacts facts{fmt::format("{} in use; compiled in: {}", ways_text(live), ways_text(all)),
                       "not compiled in"};
  if (has_ucx(all)) {
    facts.ucx = fmt::format(
        "compiled in, not in use{}; to use it: export OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any "
        "OMPI_MCA_pml_ucx_devices=any",
        is_one_host ? " within a host (doctor on two tells whether it is between them)" : "");
  }
  if (has_ucx(live)) facts.ucx = "in use";
  return facts;
}

MachineFacts machine_facts(const Topology& topology, const std::string& root) {
  const std::vector<std::string> live = live_plugins();
  const TransportFacts ways = transport_facts(live, plugins_beside(live), Launcher().is_one_host());
  return {.huge_pages = huge_pages_text(root),
          .shared_memory = shared_memory_text(root),
          .cpu_quota = quota_text(topology),
          .transports = ways.transports,
          .ucx = ways.ucx,
          .process_manager = process_manager_text(),
          .slurm = slurm_text()};
}

}  // namespace moesaic
