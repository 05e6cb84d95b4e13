#pragma once

#include <cstdint>

#include "kernels/packed_matrix.h"

namespace moesaic {

/// A low-rank addition to rows [first_row, first_row + b.rows) of a matrix W [out, in]:
/// y += scale * (x A^T) B^T. Owns nothing.
struct Adapter {
  PackedMatrix a{};            // [rank, in], in the format of activations: bf16 or f32
  PackedMatrix b{};            // [rows, rank]
  float scale = 0;             // of x A^T, in f32, before it is rounded like any input of a product
  std::int64_t first_row = 0;  // queries, keys and values are rows of one joined matrix
  std::int32_t index = -1;     // in its AdapterSet: where its gradients go
  std::uint64_t key = 0;       // of its module, wherever it is: for DropoutMask

  [[nodiscard]] std::int64_t rank() const noexcept { return a.rows; }
};

}  // namespace moesaic
