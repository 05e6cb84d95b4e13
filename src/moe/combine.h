#pragma once

namespace moesaic {

/// Where the weighted results of a token are added.
enum class Combine {
  ordered,  ///< at home, in ascending expert id: the same bits wherever experts are
  /// Those of one rank there, in ascending expert id, and the sums at home: one row comes back from
  /// a rank, not one a choice. The bits depend on which experts share a rank.
  fast
};

}  // namespace moesaic
