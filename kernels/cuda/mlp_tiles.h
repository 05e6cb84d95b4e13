#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/mlp_arguments.h"

namespace moesaic {

/// Rows [first_row, first_row + num_rows) of the results, and the MLP they go through.
struct DeviceRows {
  std::int32_t mlp = 0;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};

// Kernels of several sizes share a pass: `sizes` are the rows of their tiles, at most, ascending.
// Rows of an MLP become tiles of the largest size, then one of the smallest that takes the rest.

/// The tiles of kernel `kind` among `sizes`, in the order of groups and rows.
[[nodiscard]] std::vector<cuda::MlpTile> tiles_of_kind(std::span<const int> sizes, std::size_t kind,
                                                       std::span<const DeviceRows> groups);
/// How many tiles of that kind there can be, however `rows` rows are spread over `mlps` MLPs, of
/// which none has more than `most_of_one`.
struct RowBounds {
  std::int64_t rows = 0;
  std::int64_t mlps = 0;
  std::int64_t most_of_one = 0;
};
[[nodiscard]] std::int64_t most_tiles_of_kind(std::span<const int> sizes, std::size_t kind,
                                              const RowBounds& bounds);

}  // namespace moesaic
