#include "base/topology.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "base/directory.h"
#include "base/error.h"

namespace moesaic {
namespace {

struct FreeTopology {
  void operator()(hwloc_topology* topology) const noexcept { hwloc_topology_destroy(topology); }
};
struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

int count_inside(hwloc_topology_t topology, hwloc_const_bitmap_t cpus, hwloc_obj_type_t type) {
  int count = 0;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    if (hwloc_bitmap_intersects(object->cpuset, cpus)) ++count;
  }
  return count;
}

int index_of_ancestor(hwloc_topology_t topology, hwloc_obj_t object, hwloc_obj_type_t type) {
  const hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(topology, type, object);
  return found == nullptr ? 0 : static_cast<int>(found->logical_index);
}

std::vector<UsableCore> cores_inside(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  std::vector<UsableCore> cores;
  const std::unique_ptr<hwloc_bitmap_s, FreeBitmap> usable(hwloc_bitmap_alloc());
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    if (!hwloc_bitmap_intersects(core->cpuset, cpus)) continue;
    hwloc_bitmap_and(usable.get(), core->cpuset, cpus);
    cores.push_back({.cpu = hwloc_bitmap_first(usable.get()),
                     .numa_node = std::max(0, hwloc_bitmap_first(core->nodeset)),
                     .package = index_of_ancestor(topology, core, HWLOC_OBJ_PACKAGE)});
  }
  return cores;
}

constexpr int kMaxCpus = 8192;  // as many as a Linux can be built for

/// Of a process or thread, or of the calling one (0); null where the system does not tell.
CpuSet cpus_of(pid_t process) {
  CpuSet set(CPU_ALLOC(kMaxCpus));
  if (set == nullptr) return nullptr;
  CPU_ZERO_S(CPU_ALLOC_SIZE(kMaxCpus), set.get());
  if (sched_getaffinity(process, CPU_ALLOC_SIZE(kMaxCpus), set.get()) != 0) return nullptr;
  return set;
}

/// Whether all of `part` are in `whole`, which has more.
bool is_part_of(const cpu_set_t& part, const cpu_set_t& whole) {
  constexpr std::size_t kBytes = CPU_ALLOC_SIZE(kMaxCpus);
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, kBytes, &part) && !CPU_ISSET_S(cpu, kBytes, &whole)) return false;
  }
  return !CPU_EQUAL_S(kBytes, &part, &whole);
}

std::string list_text(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, bitmap) < 0) return "";
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

}  // namespace

Topology read_topology() {
  hwloc_topology_t raw = nullptr;
  require(hwloc_topology_init(&raw) == 0, ErrorKind::resource, "hwloc cannot be initialised");
  const std::unique_ptr<hwloc_topology, FreeTopology> topology(raw);
  require(hwloc_topology_load(raw) == 0, ErrorKind::resource,
          "hwloc cannot read this machine's topology");
  const std::unique_ptr<hwloc_bitmap_s, FreeBitmap> cpus(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(raw, cpus.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_copy(cpus.get(), hwloc_topology_get_allowed_cpuset(raw));
  }
  hwloc_bitmap_and(cpus.get(), cpus.get(), hwloc_topology_get_allowed_cpuset(raw));

  Topology result;
  result.usable_pus = std::max(1, hwloc_bitmap_weight(cpus.get()));
  result.cores = cores_inside(raw, cpus.get());
  result.usable_cores = std::max(1, static_cast<int>(result.cores.size()));
  result.is_this_machine = hwloc_topology_is_thissystem(raw) != 0;
  if (result.is_this_machine) result.quota = cpu_quota();
  if (result.quota.cores > 0) {
    const double whole = std::max(1.0, std::floor(result.quota.cores));
    result.usable_cores = static_cast<int>(std::min<double>(result.usable_cores, whole));
  }
  result.machine_cores = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE));
  result.machine_numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE));
  result.machine_packages = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PACKAGE));
  result.usable_packages = std::max(1, count_inside(raw, cpus.get(), HWLOC_OBJ_PACKAGE));
  result.usable_numa_nodes = std::max(1, count_inside(raw, cpus.get(), HWLOC_OBJ_NUMANODE));
  result.cpuset = list_text(cpus.get());
  const hwloc_obj_t package = hwloc_get_obj_by_type(raw, HWLOC_OBJ_PACKAGE, 0);
  const char* model =
      package != nullptr ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  if (model != nullptr) result.cpu_model = model;
  return result;
}

bool take_cpus_of_parent() {
  constexpr std::size_t kBytes = CPU_ALLOC_SIZE(kMaxCpus);
  const CpuSet own = cpus_of(0);
  const CpuSet parents = cpus_of(::getppid());
  if (own == nullptr || parents == nullptr || !is_part_of(*own, *parents)) return false;
  if (sched_setaffinity(0, kBytes, parents.get()) != 0) return false;
  std::error_code error;
  for (const auto& thread : entries_of("/proc/self/task", error)) {
    // None is left behind but one that ends meanwhile: the system has allowed it to this one.
    (void)sched_setaffinity(std::stoi(thread.path().filename().string()), kBytes, parents.get());
  }
  return true;
}

bool bind_this_thread(std::span<const int> cpus) {
  if (cpus.empty()) return false;
  const int count = std::ranges::max(cpus) + 1;
  const CpuSet set(CPU_ALLOC(count));
  if (set == nullptr) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
}

}  // namespace moesaic
