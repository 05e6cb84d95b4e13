#include "src/parallel/process_grid.h"

#include "base/error.h"

namespace moesaic {

ProcessGrid::ProcessGrid(Communicator& world, int expert_replicas)
    : world_(&world), expert_replicas_(expert_replicas) {
  require(expert_replicas >= 1 && world.size() % expert_replicas == 0, ErrorKind::usage,
          "--expert-replicas {} does not divide the {} ranks", expert_replicas, world.size());
  const int group_size = world.size() / expert_replicas;
  experts_ = world.split(world.rank() / group_size, world.rank());
  node_ = world.split_node();
}

}  // namespace moesaic
