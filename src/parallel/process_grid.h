#pragma once

#include <memory>

#include "comm/communicator.h"

namespace moesaic {

/// All ranks as replicas x expert-parallel groups: R = replicas * experts_size. Ranks [g * ep, (g +
/// 1) * ep) form group g and hold one copy of all experts; every rank has sequences of its own.
class ProcessGrid {
 public:
  /// Splits `world`, which must outlive the grid. Collective. Throws Error{usage} if the replicas
  /// do not divide the ranks.
  ProcessGrid(Communicator& world, int expert_replicas);

  [[nodiscard]] Communicator& world() const noexcept { return *world_; }
  /// The ranks that share one copy of the experts with this one.
  [[nodiscard]] Communicator& experts() const noexcept { return *experts_; }
  /// The ranks on this node.
  [[nodiscard]] Communicator& node() const noexcept { return *node_; }
  [[nodiscard]] int expert_replicas() const noexcept { return expert_replicas_; }

 private:
  Communicator* world_;
  int expert_replicas_;
  std::unique_ptr<Communicator> experts_;
  std::unique_ptr<Communicator> node_;
};

}  // namespace moesaic
