#include "base/topology.h"

#include <hwloc.h>

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

int count_inside(hwloc_topology_t topology, hwloc_const_bitmap_t cpus, hwloc_obj_type_t type) {
  int count = 0;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    if (hwloc_bitmap_intersects(object->cpuset, cpus)) ++count;
  }
  return count;
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
  result.usable_cores = std::max(1, count_inside(raw, cpus.get(), HWLOC_OBJ_CORE));
  result.machine_cores = std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE));
  result.usable_numa_nodes = std::max(1, count_inside(raw, cpus.get(), HWLOC_OBJ_NUMANODE));
  result.cpuset = list_text(cpus.get());
  const hwloc_obj_t package = hwloc_get_obj_by_type(raw, HWLOC_OBJ_PACKAGE, 0);
  const char* model =
      package != nullptr ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  if (model != nullptr) result.cpu_model = model;
  return result;
}

}  // namespace moesaic
