#pragma once

namespace moesaic {

/// Where the weighted results of a token are added.
enum class Combine {
  ordered,  ///< at home, in ascending expert id: the same bits wherever experts are
  /// Those of one rank there, in ascending expert id; with several nodes these sums in their node,
  /// in the order of its ranks; and what comes of that at home. One row comes back from a rank, or
  /// from a node, not one a choice. The bits depend on which experts share a rank and a node.
  fast
};

}  // namespace moesaic
