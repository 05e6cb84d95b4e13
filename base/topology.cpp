#include "base/topology.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

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

bool bind_this_thread(std::span<const int> cpus) {
  if (cpus.empty()) return false;
  const int count = std::ranges::max(cpus) + 1;
  const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(count));
  if (set == nullptr) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
}

}  // namespace moesaic
