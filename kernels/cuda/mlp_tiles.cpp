#include "kernels/cuda/mlp_tiles.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {
namespace {

/// The smallest that takes all rows, or the largest: bits do not depend on it.
std::size_t kind_for(std::span<const int> sizes, std::int64_t rows) {
  for (std::size_t kind = 0; kind < sizes.size(); ++kind) {
    if (rows <= sizes[kind]) return kind;
  }
  return sizes.size() - 1;
}

}  // namespace

std::vector<cuda::MlpTile> tiles_of_kind(std::span<const int> sizes, std::size_t kind,
                                         std::span<const DeviceRows> groups) {
  std::vector<cuda::MlpTile> tiles;
  for (const DeviceRows& group : groups) {
    for (std::int64_t row = 0; row < group.num_rows;) {
      const std::size_t own = kind_for(sizes, group.num_rows - row);
      const std::int64_t count = std::min<std::int64_t>(sizes[own], group.num_rows - row);
      if (own == kind) {
        tiles.push_back(
            {group.mlp, narrow<std::int32_t>(group.first_row + row), narrow<std::int32_t>(count)});
      }
      row += count;
    }
  }
  return tiles;
}

/// An MLP has one tile of a kind, which has more rows than the kind below takes; of the last kind
/// it has one more for each tile that is full besides.
std::int64_t most_tiles_of_kind(std::span<const int> sizes, std::size_t kind,
                                const RowBounds& bounds) {
  const std::int64_t least = kind == 0 ? 1 : sizes[kind - 1] + 1;
  if (bounds.most_of_one < least) return 0;
  const std::int64_t mlps = std::min(bounds.mlps, bounds.rows / least);
  if (kind + 1 < sizes.size()) return mlps;
  return mlps + (bounds.rows - mlps * least) / sizes[kind];
}

}  // namespace moesaic
