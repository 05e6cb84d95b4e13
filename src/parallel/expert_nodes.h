#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/node_map.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

/// The ranks that share experts, by node. With Combine::fast those of a node add their results of a
/// token, and one of them has the sum.
class ExpertNodes {
 public:
  /// Collective over `experts`, the ranks that share the experts.
  explicit ExpertNodes(Communicator& experts);

  /// Of the ranks that share the experts.
  [[nodiscard]] const NodeMap& map() const noexcept { return map_; }
  /// Those of this node.
  [[nodiscard]] Communicator& ranks() const noexcept { return *ranks_; }

 private:
  std::unique_ptr<Communicator> ranks_;
  NodeMap map_;
};

/// Those with whose sums Combine::fast is done: null where all ranks are on one node, whatever
/// rows travel by. Collective.
[[nodiscard]] std::unique_ptr<ExpertNodes> make_expert_nodes(Communicator& experts);

/// A token: its home, and which experts it chose.
struct TokenChoices {
  int home = 0;
  std::span<const ExpertId> experts{};
};
/// The rank that adds what ranks of `node` have of a token: its home if that is one of them, else
/// the owner of one of its experts there, whose turn it is by the first of them. -1 if none is
/// there.
[[nodiscard]] int adding_rank(const TokenChoices& token, const ExpertPlacement& placement,
                              const NodeMap& nodes, std::size_t node);

}  // namespace moesaic
