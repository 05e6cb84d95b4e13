#include "src/parallel/process_grid.h"

#include "src/parallel/expert_placement.h"

namespace moesaic {

ProcessGrid::ProcessGrid(Communicator& world, int expert_replicas)
    : world_(&world), expert_replicas_(expert_replicas) {
  require_replicas(world.size(), expert_replicas);
  const int group_size = world.size() / expert_replicas;
  experts_ = world.split(world.rank() / group_size, world.rank());
  node_ = world.split_node();
}

}  // namespace moesaic
