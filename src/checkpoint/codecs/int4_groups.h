#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/format.h"
#include "src/checkpoint/codecs/stored_matrix.h"

namespace moesaic {

/// Groups of k that share a scale in a file of 4-bit integers.
struct StoredGroups {
  std::int64_t size = 0;            ///< k of one group; the last may have fewer
  std::vector<std::int32_t> order;  ///< k in the order of their groups; empty: it is their own
};

/// `count` groups of the same size in a row of `cols`. Throws Error{file}, naming `scales`, if they
/// do not divide it.
[[nodiscard]] StoredGroups even_groups(const StoredTensor& scales, std::int64_t count,
                                       std::int64_t cols);

/// The groups that `g_idx` I32 [cols] gives: element k belongs to group g_idx[k] of `count`.
/// Activation order spreads them over the row; sorted (k ascending within a group), all but the
/// last must have the same size, since kernels know no other. nullopt if g_idx is all -1, which is
/// what an unused one holds.
[[nodiscard]] std::optional<StoredGroups> indexed_groups(const StoredTensor& g_idx,
                                                         std::int64_t count, std::int64_t cols);

/// int4_group as kernels have it: a group of the file becomes one or several of 128, 64 or 32 k
/// with the same scale; a scale of the whole row becomes groups of 128. Symmetric BF16 scales are
/// compact, all others wide. Throws Error{file}, naming `scales`, for a group that is no multiple
/// of 32.
[[nodiscard]] Layout int4_group_layout(const StoredTensor& scales, const StoredGroups& groups,
                                       std::int64_t cols, bool symmetric);

}  // namespace moesaic
